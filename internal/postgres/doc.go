// Package postgres has what every package needs of the database: the pool, classes of errors, group commits, the
// database's clock, ids, sealed secrets. It knows no table of the product.
package postgres
