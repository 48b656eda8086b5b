package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/jobs/publish"
	"postrider/jobs/pull"
	"postrider/server/api"
	"postrider/server/auth"
)

// Limits of requests of consumers.
//
// Source: Microsoft, Azure REST API, Event Grid data plane, 2024-06-01; maxLockTokens is ours.
const (
	maxReceived   = 100
	maxLockTokens = 1000
	leastWait     = 10
	mostWait      = 120
	defaultWait   = 60
)

// receiveGrace is how long the response to a receive may take after the wait for events.
const receiveGrace = 30 * time.Second

// releaseDelays are the valid values of releaseDelayInSeconds.
var releaseDelays = []int{0, 10, 60, 600, 3600}

// consumer is an authorized request of a consumer.
type consumer struct {
	sub   *catalog.Subscription
	query url.Values
	name  string // for the view postrider.locks
}

// consumes authorizes a request of a consumer and passes it on.
func (s *Server) consumes(next func(echo.Context, *consumer) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		r, topic, name := c.Request(), api.PathValue(c, "topic"), api.PathValue(c, "subscription")
		credential, err := s.credential(r, &namespaceTopics, topic)
		if err != nil {
			return err
		}
		if err := s.auth.LookUpConsumer(r.Context(), &credential, topic, name); err != nil {
			return s.credentialError(r, topic, &credential, err)
		}
		sub, err := s.consumed(r.Context(), &credential, topic, name)
		if err != nil {
			return s.credentialError(r, topic, &credential, err)
		}
		s.credentialOpened(r, topic, &credential)
		return next(c, &consumer{sub, foldedQuery(r.URL), credential.Name + " " + c.RealIP()})
	}
}

// consumed finds an event subscription. Before it rejects a request, it confirms that the catalog in memory is current.
func (s *Server) consumed(
	ctx context.Context, credential *auth.Credential, topic, name string,
) (*catalog.Subscription, error) {
	sub, err := openConsumed(s.parts.Cache.Snapshot(), credential, topic, name)
	if err == nil {
		return sub, nil
	}
	if err := s.parts.Cache.Confirm(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", postgres.ErrUnavailable, err)
	}
	return openConsumed(s.parts.Cache.Snapshot(), credential, topic, name)
}

func openConsumed(
	snapshot *catalog.Snapshot, credential *auth.Credential, topic, name string,
) (*catalog.Subscription, error) {
	t, exists := snapshot.Topic(topic)
	switch {
	case !exists && !credential.Opens(catalog.NoTopic()):
		return nil, publish.ErrUnauthorized
	case !exists:
		return nil, postgres.ErrNotFound
	case !credential.Opens(t):
		return nil, publish.ErrUnauthorized
	}
	sub, exists := snapshot.SubscriptionNamed(t.ID, name)
	if !exists {
		return nil, api.SubscriptionNotFound(topic, name)
	}
	return sub, nil
}

// receive responds with events, which are then locked for the consumer. If none is available it waits.
func (s *Server) receive(c echo.Context, r *consumer) error {
	var found api.Problems
	most := queryInteger(&found, r.query, "maxEvents", 1, 1, maxReceived)
	seconds := queryInteger(&found, r.query, "maxWaitTime", defaultWait, leastWait, mostWait)
	if err := found.Err(); err != nil {
		return err
	}
	// net/http reports the end of the connection only after the body's.
	body, err := api.ReadBody(c.Request(), api.MaxBodyBytes)
	if err != nil {
		return err
	}
	api.Free(body)
	wait, connection := time.Duration(seconds)*time.Second, http.NewResponseController(c.Response().Writer)
	_ = connection.SetWriteDeadline(time.Now().Add(wait + receiveGrace)) // a test's writer may have none
	began := time.Now()
	received, err := s.receiveFrom(c.Request().Context(), r, most, wait)
	c.Set(waitedKey, time.Since(began))
	if err != nil {
		return err
	}
	text := receivedText(received)
	c.Response().Header().Set(echo.HeaderContentLength, strconv.Itoa(len(text)))
	err = c.Blob(http.StatusOK, "application/json; charset=utf-8", text)
	if err == nil {
		err = connection.Flush()
	}
	if err == nil || len(received) == 0 {
		return nil
	}
	s.log.Debug("a consumer did not get its events", "error", err)
	return s.parts.Receiver.Return(r.sub, received)
}

// receiveFrom receives events. Before it rejects a request because of the delivery mode, it confirms that the catalog
// in memory is current.
func (s *Server) receiveFrom(
	ctx context.Context, r *consumer, most int, wait time.Duration,
) (received []pull.Delivery, err error) {
	if !r.sub.Pulled() {
		if err := s.parts.Cache.Confirm(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", postgres.ErrUnavailable, err)
		}
	}
	received, err = s.parts.Receiver.Receive(ctx, r.sub, most, wait, r.name)
	if errors.Is(err, pull.ErrPush) {
		return nil, api.Reject(http.StatusBadRequest, api.CodeInvalidRequest,
			"event subscription %q of topic %q has deliveryMode %s: its events are sent to its endpoint; to receive them, set "+
				"deliveryConfiguration.deliveryMode to %s", r.sub.Name, r.sub.Topic, catalog.ModePush, catalog.ModeQueue)
	}
	if errors.Is(err, postgres.ErrNotFound) {
		return nil, api.SubscriptionNotFound(r.sub.Topic, r.sub.Name)
	}
	return received, err
}

// receivedText is the response to a receive. The events are as they were published.
func receivedText(received []pull.Delivery) []byte {
	size := pull.AroundEvent
	for i := range received {
		size += len(received[i].Event) + pull.AroundEvent
	}
	b := append(make([]byte, 0, size), `{"value":[`...)
	for i := range received {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"brokerProperties":{"lockToken":"%s","deliveryCount":%d},"event":`, received[i].Token,
			received[i].Count)
		b = append(append(b, received[i].Event...), '}')
	}
	return append(b, "]}"...)
}

// settledResponse is the response to lock tokens.
type settledResponse struct {
	Succeeded []string      `json:"succeededLockTokens"`
	Failed    []failedToken `json:"failedLockTokens"`
}

type failedToken struct {
	Token string     `json:"lockToken"`
	Error tokenError `json:"error"`
}

// tokenError is why a token failed.
//
// Source: Microsoft, Azure SDK for Go, aznamespaces/client_test.go, 2024-06-11, for lost; examples of Azure REST API,
// Event Grid data plane, 2024-06-01, for the other code.
type tokenError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

var (
	lostToken = tokenError{"TokenLost", "Token has expired."}
	badToken  = tokenError{"BadToken", "This is not a lock token."}
)

// settle ends the locks of tokens.
func (s *Server) settle(how pull.Settlement) func(echo.Context, *consumer) error {
	return func(c echo.Context, r *consumer) error {
		delay, err := releaseDelay(how, r.query)
		if err != nil {
			return err
		}
		return respondToTokens(c, func(tokens []pull.LockToken) ([]bool, error) {
			return s.parts.Receiver.Settle(c.Request().Context(), r.sub, how, tokens, delay)
		})
	}
}

// renewLocks gives the locks of tokens their whole duration again.
func (s *Server) renewLocks(c echo.Context, r *consumer) error {
	return respondToTokens(c, func(tokens []pull.LockToken) ([]bool, error) {
		return s.parts.Receiver.Renew(c.Request().Context(), r.sub, tokens)
	})
}

// respondToTokens applies an operation to the tokens of a request. Of equal tokens, the first one counts.
func respondToTokens(c echo.Context, apply func([]pull.LockToken) ([]bool, error)) error {
	texts, err := lockTokens(c.Request())
	if err != nil {
		return err
	}
	var tokens []pull.LockToken
	positions := make(map[pull.LockToken]int, len(texts)) // of a token's first text
	for i, text := range texts {
		token, valid := pull.ParseLockToken(text)
		if _, duplicate := positions[token]; valid && !duplicate {
			tokens, positions[token] = append(tokens, token), i
		}
	}
	var applied []bool
	if len(tokens) > 0 {
		if applied, err = apply(tokens); err != nil {
			return err
		}
	}
	succeeded := make(map[int]bool, len(texts))
	for i, token := range tokens {
		succeeded[positions[token]] = applied[i]
	}
	response := settledResponse{Succeeded: []string{}, Failed: []failedToken{}}
	for i, text := range texts {
		switch _, valid := pull.ParseLockToken(text); {
		case succeeded[i]:
			response.Succeeded = append(response.Succeeded, text)
		case valid:
			response.Failed = append(response.Failed, failedToken{text, lostToken})
		default:
			response.Failed = append(response.Failed, failedToken{text, badToken})
		}
	}
	return c.JSON(http.StatusOK, response)
}

// lockTokens reads the tokens of a request. Unknown members are ignored, as Event Grid does.
func lockTokens(r *http.Request) ([]string, error) {
	var request struct {
		LockTokens *[]string `json:"lockTokens"`
	}
	body, err := api.ReadBody(r, api.MaxBodyBytes)
	if err != nil {
		return nil, err
	}
	defer api.Free(body)
	err = json.Unmarshal(body.Bytes(), &request)
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(err, &mismatch) && mismatch.Field != "":
		return nil, api.Invalid("lockTokens", "must be an array of strings, not of %s", mismatch.Value)
	case err != nil:
		return nil, api.Reject(http.StatusBadRequest, api.CodeInvalidRequest, `the body must be {"lockTokens": [...]}`)
	case request.LockTokens == nil:
		return nil, api.Invalid("lockTokens", "is required")
	case len(*request.LockTokens) > maxLockTokens:
		return nil, api.Invalid("lockTokens", "must have at most %d tokens, not %d", maxLockTokens,
			len(*request.LockTokens))
	}
	return *request.LockTokens, nil
}

// releaseDelay reads releaseDelayInSeconds, which only releases have.
func releaseDelay(how pull.Settlement, query url.Values) (time.Duration, error) {
	const name = "releaseDelayInSeconds"
	given, has := query[strings.ToLower(name)]
	if !has || how != pull.Release {
		return 0, nil
	}
	var texts []string
	for _, seconds := range releaseDelays {
		if texts = append(texts, strconv.Itoa(seconds)); texts[len(texts)-1] == given[0] {
			return time.Duration(seconds) * time.Second, nil
		}
	}
	return 0, api.Invalid(name, "must be one of %s, not %q", strings.Join(texts, ", "), api.Shorten(given[0]))
}

// foldedQuery is the query by names in lower case: Event Grid ignores their case.
func foldedQuery(u *url.URL) url.Values {
	folded := url.Values{}
	for name, values := range u.Query() {
		name = strings.ToLower(name)
		folded[name] = append(folded[name], values...)
	}
	return folded
}

// queryInteger reads a query parameter.
func queryInteger(found *api.Problems, query url.Values, name string, otherwise, least, most int) int {
	given, has := query[strings.ToLower(name)]
	if !has {
		return otherwise
	}
	value, err := strconv.Atoi(given[0])
	if err != nil || value < least || value > most {
		found.Value(name, "must be an integer between %d and %d, not %q", least, most, api.Shorten(given[0]))
	}
	return value
}
