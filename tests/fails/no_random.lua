math.random()
