// Package v1 handles the REST API's operations under /v1. The generated code in package api reads their
// parameters and writes their responses.
package v1
