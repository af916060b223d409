// Package dialects has the tests of the stores [sqlstore.SQLite] and [sqlstore.MySQL], on real databases. It
// is a module of its own, since a store over database/sql needs no driver, and its tests do.
package dialects
