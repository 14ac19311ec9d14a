// nearest
