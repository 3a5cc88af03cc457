"""Who sends what next, what is confirmed, and who may lead. Pure: events and the time in, commands out."""
