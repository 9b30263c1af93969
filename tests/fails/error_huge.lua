error(("x"):rep(100000), 0)
