error("no such head size")
