// Package operator does what an operator does: cancel, retry, redeliver, purge and erase, one by one or in bulk.
package operator
