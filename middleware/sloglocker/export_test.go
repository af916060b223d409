package sloglocker

// Levels are those of all events unless WithLevel gives another.
var Levels = levels
