import kvkiln
