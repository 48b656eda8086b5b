// Package filter decides which events an event subscription matches. It is pure: it reads no clock, file or network.
//
// Filter is the configuration (Event Grid's subject, type and advanced filters), Set matches one event against many
// filters at once, and Filter.Explain shows which condition did not match.
package filter
