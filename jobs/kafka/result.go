package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"postrider/internal/destination"
	"postrider/policy"
)

// produceError is a broker's error for a record.
type produceError struct {
	error                  // a *kerr.Error
	message  string        // the broker's own words; "" = none
	throttle time.Duration // how long the broker asks to wait
}

func (e *produceError) Unwrap() error { return e.error }

// statuses are the HTTP statuses that retry policies see for the codes of brokers. Of others, those that may pass are
// 503 and the rest 500.
//
// Source: Apache Kafka, protocol, error codes.
var statuses = map[int16]int{
	kerr.UnknownTopicOrPartition.Code: 404, kerr.UnknownTopicID.Code: 404,
	kerr.RequestTimedOut.Code: 408,
	kerr.MessageTooLarge.Code: 413, kerr.RecordListTooLarge.Code: 413,
	kerr.TopicAuthorizationFailed.Code: 403, kerr.ClusterAuthorizationFailed.Code: 403,
	kerr.UnsupportedSaslMechanism.Code: 401, kerr.IllegalSaslState.Code: 401, kerr.SaslAuthenticationFailed.Code: 401,
	kerr.InvalidTopicException.Code: 400, kerr.UnsupportedForMessageFormat.Code: 400, kerr.PolicyViolation.Code: 400,
	kerr.InvalidRecord.Code: 400, kerr.CorruptMessage.Code: 400, kerr.InvalidTimestamp.Code: 400,
}

// advice is what to do about a code.
var advice = map[int16]string{
	kerr.UnknownTopicOrPartition.Code:      "create the topic, which postrider does not do, or correct its name",
	kerr.UnknownTopicID.Code:               "the topic was deleted, or created again",
	kerr.RequestTimedOut.Code:              stored,
	kerr.NotEnoughReplicasAfterAppend.Code: stored,
	kerr.MessageTooLarge.Code:              "raise the topic's max.message.bytes, or send smaller events",
	kerr.RecordListTooLarge.Code:           "raise the topic's segment.bytes, or send smaller events",
	kerr.TopicAuthorizationFailed.Code:     "allow the user to describe the topic and write to it",
	kerr.ClusterAuthorizationFailed.Code:   "allow the user to write to the topic",
	kerr.UnsupportedSaslMechanism.Code:     "set saslMechanism to one that the broker has enabled",
	kerr.SaslAuthenticationFailed.Code:     "check the credentials and saslMechanism",
	kerr.InvalidRecord.Code:                "a compacted topic needs messageKey",
}

// stored is what errors mean that arrive after the leader has stored a record.
const stored = "the record may be stored, and the next attempt stores it again"

// result returns what the end of an attempt means for the retry policy. nil is success.
func (s *sender) result(ctx context.Context, err error) destination.Result {
	if err == nil {
		return destination.Result{Result: policy.Result{Status: 200}}
	}
	if code, ok := errors.AsType[*kerr.Error](err); ok {
		return responded(code, err)
	}
	r := destination.Result{Cause: err}
	var rejection destination.AddressRejection
	var dns *net.DNSError
	var token tokenError
	var timeout net.Error
	switch {
	case errors.As(err, &rejection) && rejection.Rejected():
		r.Err, r.Text = policy.ErrorArgument, "the broker's address must not be called: "+plainText(err)
	case errors.Is(ctx.Err(), context.Canceled):
		r.Err, r.Text, r.Cause = policy.ErrorCanceled, "the attempt was canceled", ctx.Err()
	case errors.Is(err, kgo.ErrClientClosed):
		r.Err, r.Text = policy.ErrorCanceled, "the connection was closed by postrider"
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		r.Err, r.Text = policy.ErrorTimeout, fmt.Sprintf("no response within %g s", s.timeout.Seconds())
	case errors.As(err, &token):
		r.Err, r.Text = policy.ErrorUnauthorized, "no access token: "+token.Error()
	case errors.As(err, &dns):
		r.Err, r.Text = policy.ErrorDNS, plainText(err)
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		r.Err, r.Text = policy.ErrorTimeout, "the broker did not respond: "+plainText(err)
	default:
		r.Err, r.Text = policy.ErrorSocket, plainText(err)
	}
	return r
}

// responded returns the result of a broker's error. A broker that throttles usually delays the response instead.
func responded(code *kerr.Error, err error) destination.Result {
	status := statuses[code.Code]
	if status == 0 && code.Retriable {
		status = 503
	}
	if status == 0 {
		status = 500
	}
	words := strings.TrimPrefix(err.Error(), code.Error()+": ") // of SASL, after the code
	if words == err.Error() {
		words = code.Description
	}
	r := destination.Result{Result: policy.Result{Status: status}}
	if failed, ok := errors.AsType[*produceError](err); ok {
		if failed.message != "" && failed.message != code.Message {
			words = failed.message
		}
		if status == 503 {
			r.RetryAfter = failed.throttle
		}
	}
	r.Text = fmt.Sprintf("the broker responded %s (%d): %s", code.Message, code.Code, strings.TrimSuffix(words, "."))
	if todo := advice[code.Code]; todo != "" {
		r.Text += "; " + todo
	}
	return r
}

// plainText is an error without franz-go's and Go's prefixes.
func plainText(err error) string {
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // franz-go's wrapping says more
		return "the broker closed the connection"
	}
	words := strings.TrimPrefix(err.Error(), "unable to dial: ")
	return strings.TrimPrefix(words, "dial tcp: ")
}
