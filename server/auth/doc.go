// Package auth checks the credentials of requests: access keys, shared access signatures, API keys and the admin token.
// It limits guesses and request rates, and finds the address of a client behind proxies.
package auth
