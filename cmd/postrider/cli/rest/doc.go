// Package rest is the client of the REST API that verbs use: flags for server and key, stored servers, requests, lists
// and tables of what the API returns.
package rest
