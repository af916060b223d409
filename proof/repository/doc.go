// Package repository has no code: its tests check the repository itself, that is, which package
// imports which, and that what the documentation prints compiles.
package repository
