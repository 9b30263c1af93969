os.execute("true")
return preset "turboquant_k8v4"
