// Package export writes dead letters to locations outside the database: files in a directory or a bucket. Exports has
// the rows of the exports and their jobs; Locations has the open locations.
package export
