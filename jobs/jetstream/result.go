package jetstream

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/nats-io/nats.go"

	"postrider/internal/destination"
	"postrider/policy"
)

// failure is an error that has its meaning for the retry policy.
type failure struct {
	destination.Result
	refused string // the subject that the user may not publish to
}

func (f *failure) Error() string { return f.Text }

func failed(r policy.Result, format string, args ...any) *failure {
	return &failure{Result: destination.Result{Result: r, Text: fmt.Sprintf(format, args...)}}
}

func tooLarge(size, limit int, what string) error {
	return failed(policy.Result{Status: 413}, "the message has %d bytes with its headers, and %s is %d bytes: raise the "+
		"limit, or publish smaller events", size, what, limit)
}

// resultOf returns the result of a request that ended with err.
func resultOf(err error) destination.Result {
	r := destination.Result{Cause: err}
	var f *failure
	switch {
	case err == nil:
		r.Status = 200
	case errors.As(err, &f):
		return f.Result
	case errors.Is(err, nats.ErrNoResponders):
		r.Status, r.Cause = 404, nil
		r.Text = "no responders: no stream has the subject, or it has no leader; create a stream with the subject"
	case errors.Is(err, nats.ErrMaxPayload): // the server lowered its maximum during the connection
		r.Status, r.Text = 413, words(err)+": raise max_payload of the server, or publish smaller events"
	case errors.Is(err, nats.ErrBadHeaderMsg), errors.Is(err, nats.ErrBadSubject):
		r.Err, r.Text = policy.ErrorArgument, words(err)+": correct the subject and the names of headers"
	case errors.Is(err, context.Canceled):
		r.Err, r.Text = policy.ErrorCanceled, "the request was canceled"
	case errors.Is(err, context.DeadlineExceeded):
		r.Err = policy.ErrorTimeout
		r.Text = "no acknowledgment in time: check the stream's leader, and that no other program subscribes to the subject"
	default:
		r.Err, r.Text = policy.ErrorSocket, words(err)
	}
	return r
}

// apiError is the error in a response of JetStream.
type apiError struct {
	Status      int    `json:"code"`
	Code        int    `json:"err_code"`
	Description string `json:"description"`
}

const (
	raiseLimits = "; remove messages, raise the limits, or let the stream discard old messages"
	enable      = "; enable JetStream for the server and the account"
	unavailable = "; check the servers of the cluster"
)

// meanings of JetStream's error codes. Codes that are absent are 500.
//
// Source: NATS, nats-server 2.15, server/errors.json.
var meanings = map[int]struct {
	policy.Result
	advice string
}{
	10002: {policy.Result{Err: policy.ErrorFull}, "; raise the limits of the account"},
	10008: {policy.Result{Status: 503}, unavailable},
	10023: {policy.Result{Status: 503}, unavailable},
	10028: {policy.Result{Err: policy.ErrorFull}, raiseLimits},
	10039: {policy.Result{Err: policy.ErrorDisabled}, enable},
	10047: {policy.Result{Err: policy.ErrorFull}, raiseLimits},
	10054: {policy.Result{Status: 413}, "; raise the stream's maximum message size, or publish smaller events"},
	10059: {policy.Result{Status: 404}, "; create a stream with the subject"},
	10060: {policy.Result{Status: 400}, "; correct stream or subject of the destination"},
	10076: {policy.Result{Err: policy.ErrorDisabled}, enable},
	10077: {policy.Result{Err: policy.ErrorFull}, raiseLimits},
	10097: {policy.Result{Status: 413}, "; map fewer or shorter values to headers"},
	10109: {policy.Result{Err: policy.ErrorDisabled}, "; a sealed stream stays sealed, so use another one"},
	10118: {policy.Result{Status: 503}, unavailable},
}

func (e *apiError) failure() error {
	m, ok := meanings[e.Code]
	if !ok {
		m.Status = 500
	}
	return failed(m.Result, "JetStream error %d (%d): %s%s", e.Code, e.Status, e.Description, m.advice)
}

// parseAcknowledgment returns nil if the message is stored. That includes a duplicate: an earlier attempt of the same
// delivery, whose acknowledgment was lost, stored it. A redelivery has another id.
func parseAcknowledgment(data []byte) error {
	var ack struct {
		Stream string    `json:"stream"`
		Error  *apiError `json:"error"`
	}
	switch err := json.Unmarshal(data, &ack); {
	case err == nil && ack.Error != nil:
		return ack.Error.failure()
	case err != nil || ack.Stream == "":
		return failed(policy.Result{Status: 500}, "the response is no acknowledgment: check that no other program "+
			"responds to the subject")
	}
	return nil
}

func isRejection(err error) bool {
	var rejection destination.AddressRejection
	return errors.As(err, &rejection) && rejection.Rejected()
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// connectFailure is that of a request without a connection. lost: there was one, and the client restores it. Then a
// rejected address or an unknown name is one that the cluster named, so the settings are not wrong.
func connectFailure(cause error, lost bool) error {
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var op *net.OpError
	var system syscall.Errno
	r := policy.Result{Err: policy.ErrorSocket}
	var text string
	switch {
	case isAny(cause, nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired):
		r = policy.Result{Status: 401}
		text = "the server rejected the user: " + words(cause) + "; correct username, password or credentials"
	case isAny(cause, nats.ErrMaxConnectionsExceeded, nats.ErrMaxAccountConnectionsExceeded):
		r, text = policy.Result{Status: 503}, words(cause)+": raise the limit of the server or the account"
	case isRejection(cause):
		r.Err, text = policy.ErrorArgument, cause.Error()
	case errors.As(cause, &dns):
		r.Err, text = policy.ErrorDNS, "name "+dns.Name+" could not be resolved: "+dns.Err+"; correct servers"
	case errors.Is(cause, nats.ErrSecureConnWanted):
		text = "the server offers no TLS: configure it there, or set tls to false"
	case errors.As(cause, &certificate):
		text = "the server's certificate is not trusted: " + words(certificate.Err)
	case errors.As(cause, &op) && op.Addr != nil && errors.As(cause, &system):
		text = "no connection to " + op.Addr.String() + ": " + system.Error() + "; check that the server runs"
	case errors.Is(cause, io.EOF):
		text = "the server closed the connection"
	default:
		text = "no connection to the servers: " + words(cause)
	}
	if lost && r.Err != "" {
		r.Err, text = policy.ErrorSocket, "the connection was lost and is being restored: "+text
	}
	f := failed(r, "%s", text)
	f.Cause = cause
	return f
}

// words returns the error's text without the prefixes of packages.
func words(err error) string {
	text := err.Error()
	for _, prefix := range []string{"nats: ", "TLS error: ", "tls: ", "x509: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}
