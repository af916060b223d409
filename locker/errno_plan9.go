package locker

// Plan 9 has no error numbers.
var refusedConnection, resetConnection []error
