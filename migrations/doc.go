// Package migrations holds the schema: SQL files for goose, embedded, and the one function that brings a database up
// to date. It decides nothing about events; it knows River's schema version, because both schemas live in one database
// and must fit together.
package migrations
