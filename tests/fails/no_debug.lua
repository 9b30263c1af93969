debug.getinfo(1)
