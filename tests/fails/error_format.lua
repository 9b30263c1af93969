error("%s%n%d", 0)
