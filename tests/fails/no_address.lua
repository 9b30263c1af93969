return tostring({})
