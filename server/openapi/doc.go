// Package openapi shows the specification of the REST API as a page to read.
package openapi
