return preset(4)
