// Package endpointconf validates and interprets what an event subscription says about its endpoint: URL, connection,
// headers, signing, validation handshake, rate and dead-letter location, and which addresses may be called. It is pure:
// it opens no connection and reads no clock.
package endpointconf

import "postrider/internal/filter"

func invalid(field, message string) *filter.ValidationError {
	return &filter.ValidationError{Field: field, Message: message}
}

func alphanumeric(c rune) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
