error("first\nsecond\27[31m", 0)
