package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"postrider/internal/destination"
	"postrider/policy"
)

// codes are the HTTP statuses that retry policies see for the codes of brokers, and what to do about them. Of others,
// those that may pass are 503 and the rest 500.
//
// Source: Apache Kafka, protocol, error codes.
var codes = map[*kerr.Error]struct {
	status int
	advice string
}{
	kerr.UnknownTopicOrPartition:    {404, "create the topic, which postrider does not do, or correct its name"},
	kerr.MessageTooLarge:            {413, "raise the topic's max.message.bytes, or send smaller events"},
	kerr.RecordListTooLarge:         {413, "raise the topic's segment.bytes, or send smaller events"},
	kerr.TopicAuthorizationFailed:   {403, "allow the user to describe the topic and write to it"},
	kerr.ClusterAuthorizationFailed: {403, "allow the user to write to the topic"},
	kerr.UnsupportedSaslMechanism:   {401, "set saslMechanism to one that the broker has enabled"},
	kerr.SaslAuthenticationFailed:   {401, "check the credentials and saslMechanism"},
	kerr.InvalidRecord:              {400, "a compacted topic needs messageKey"},
	kerr.IllegalSaslState:           {401, ""}, kerr.InvalidTopicException: {400, ""}, kerr.PolicyViolation: {400, ""},
	kerr.UnsupportedForMessageFormat: {400, ""}, kerr.CorruptMessage: {400, ""}, kerr.InvalidTimestamp: {400, ""},
}

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
	var timeout net.Error
	switch {
	case errors.As(err, &rejection) && rejection.Rejected():
		r.Err, r.Text = policy.ErrorArgument, "the broker's address must not be called: "+plainText(err)
	case errors.Is(ctx.Err(), context.Canceled):
		r.Err, r.Text, r.Cause = policy.ErrorCanceled, "the attempt was canceled", ctx.Err()
	case errors.Is(err, kgo.ErrRecordRetries):
		r.Status, r.Text = 503, "the broker requires another try, or lost its connection; the record may be stored"
	case errors.Is(err, kgo.ErrClientClosed):
		r.Err, r.Text = policy.ErrorCanceled, "the connection was closed by postrider"
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		r.Err, r.Text = policy.ErrorTimeout, fmt.Sprintf("no response within %g s", s.timeout.Seconds())
	case errors.Is(err, errToken):
		r.Err, r.Text = policy.ErrorUnauthorized, plainText(err)
	case errors.As(err, &dns):
		r.Err, r.Text = policy.ErrorDNS, "name "+dns.Name+" could not be resolved: "+dns.Err
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, kgo.ErrRecordTimeout):
		r.Err, r.Text = policy.ErrorTimeout, "the broker did not respond: "+plainText(err)
	default:
		r.Err, r.Text = policy.ErrorSocket, plainText(err)
	}
	return r
}

// responded returns the result of a broker's error.
func responded(code *kerr.Error, err error) destination.Result {
	known := codes[code]
	if known.status == 0 {
		known.status = 500
		if code.Retriable {
			known.status = 503
		}
	}
	words := code.Description
	if _, own, ok := strings.Cut(err.Error(), code.Error()+": "); ok { // of SASL
		words = own
	}
	text := fmt.Sprintf("the broker responded %s (%d): %s", code.Message, code.Code, strings.TrimSuffix(words, "."))
	if known.advice != "" {
		text += "; " + known.advice
	}
	return destination.Result{Result: policy.Result{Status: known.status}, Text: text}
}

// plainText is an error without franz-go's and Go's prefixes.
func plainText(err error) string {
	var dial *net.OpError
	var system syscall.Errno
	if errors.As(err, &dial) && dial.Op == "dial" && dial.Addr != nil && errors.As(dial, &system) {
		return "no connection to " + dial.Addr.String() + ": " + system.Error()
	}
	words := prefix.ReplaceAllString(err.Error(), "")
	if words == io.EOF.Error() || words == io.ErrUnexpectedEOF.Error() {
		return "the broker closed the connection"
	}
	return words
}

var prefix = regexp.MustCompile(`^(.*last err: )?(unable to dial: )?(dial tcp:? )?`)
