"""What a master that recovers would do if its operator accepted the loss now. Pure: nobody is told of it, and nothing is fetched."""

import copy
from dataclasses import replace

from dittomq.replication.leadership import Leadership
from dittomq.replication.leadership_decisions import Announce, Follow, GiveUp, Lead, Refuse, TakeOver, Wait
from dittomq.replication.leadership_states import Standing
from dittomq.replication.own_log import OwnLog, Stopped

_DECIDES = {Standing.WAITING, Standing.HOLDING, Standing.REFUSING}


def if_loss_is_accepted(start: Leadership, own: OwnLog, now: float) -> Lead | Follow | Refuse | Wait:
    """What `start`, whose log is `own`, would come to with what was heard so far: as though all that it asks for on the way went well."""
    start = copy.deepcopy(start)
    start.accept_loss()
    while start.standing in _DECIDES:
        match start.decide(now):
            case TakeOver(end=end, lineage=lineage):
                own = replace(own, stopped=Stopped.INCOMPLETE if own.stopped is Stopped.EMPTY else own.stopped, end=end, lineage=lineage)
                start.took_over(own)
            case GiveUp(opening=opening):
                own = replace(own, stopped=Stopped.INCOMPLETE, told=opening)
                start.gave_up(own)
            case Announce():
                start.announced()
            case decided:
                return decided
    return Wait(str(start.standing))
