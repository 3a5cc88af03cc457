"""Write down in every play what the deciders answer now. Run by `make transcripts`; read the diff before it is committed."""

from tests.transcripts.stage import PLAYS, perform

if __name__ == "__main__":
    for play in PLAYS:
        written = play.read_text(encoding="utf-8")
        acted = perform(written)
        if acted != written:
            play.write_text(acted, encoding="utf-8")
            print(f"rewritten: {play.name}")
