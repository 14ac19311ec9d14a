// read
