// Package endpoint sends HTTP requests to endpoints: deliveries, validation handshakes and OAuth token requests.
//
// It guards addresses after name resolution, follows no redirect, uses no proxy unless configured, and keeps a call
// open past its ack timeout while a late response still counts. Read Client.Send first.
package endpoint
