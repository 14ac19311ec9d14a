// document
