// Package query reads what REST lists, dashboard pages, metrics and doctor show. It changes nothing.
package query
