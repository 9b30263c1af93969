local base = preset { key = codebook { bits = 2, centroids = { -.1, -.03, .03, .1 } }, value = affine { bits = 4 } }
return base { key = { bits = 3 } }
