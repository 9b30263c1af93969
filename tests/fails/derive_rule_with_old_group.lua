return preset "ultraquant_4bit" { key = { rule = "nvfp4", group = 32 } }
