error("\1an unnamed file", 0)
