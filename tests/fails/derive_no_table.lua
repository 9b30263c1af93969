return preset "turboquant_4bit_nc" "soa"
