package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/internal/sqlquery"
	"postrider/jobs/publish"
	"postrider/jobs/pull"
	"postrider/policy"
)

// Codes of error responses. Package event has more.
const (
	CodeInvalidRequest       = "InvalidRequest"
	codeInvalidValue         = "InvalidValue"
	codeInvalidQuery         = "InvalidQuery"
	codeUnknownMember        = "UnknownMember"
	codeUnauthorized         = "Unauthorized"
	codeForbidden            = "Forbidden"
	codeNotFound             = "NotFound"
	codePreconditionFailed   = "PreconditionFailed"
	codeTooManyRequests      = "TooManyRequests"
	CodeUnsupportedMediaType = event.CodeUnsupportedMediaType
	CodeInternal             = "InternalError"
	CodeUnavailable          = "ServiceUnavailable"
)

// queryRetry is the Retry-After while all login roles for queries are in use.
const queryRetry = 5 * time.Second

// overloadRetry is the Retry-After while too many publish requests wait on a node.
const overloadRetry = 5 * time.Second

// ErrorResponse is the body of every error response.
type ErrorResponse struct {
	Error Error `json:"error"`
}

// Error is what was rejected, and why.
type Error struct {
	Code    string        `json:"code"`
	Message string        `json:"message"`
	Details []ErrorDetail `json:"details"`
}

// ErrorDetail is one of the mistakes in a request.
type ErrorDetail struct {
	Code    string `json:"code"`
	Target  string `json:"target"`
	Message string `json:"message"`
}

// RejectionError is an error response. The client sees all of its text.
type RejectionError struct {
	Status        int
	Code, Message string
	Details       []ErrorDetail
	// Actor is the authenticated actor whose role does not allow the request; "" for other errors.
	Actor string
	// RetryAfter is sent with 429 and 503, rounded up to seconds; with 503 at least 1 s.
	RetryAfter time.Duration
}

// Error returns the message.
func (r *RejectionError) Error() string { return r.Message }

// Reject is an error response.
func Reject(status int, code, format string, args ...any) *RejectionError {
	return &RejectionError{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// RejectUnauthorized is the response to a missing or wrong credential.
func RejectUnauthorized(message string) error {
	return Reject(http.StatusUnauthorized, codeUnauthorized, "%s", message)
}

// RejectForbidden is the response to an actor whose role or scope does not allow the request.
func RejectForbidden(actor, format string, args ...any) error {
	r := Reject(http.StatusForbidden, codeForbidden, format, args...)
	r.Actor = actor
	return r
}

// RejectConflict is a response 409.
func RejectConflict(code ConflictCode, format string, args ...any) *RejectionError {
	return Reject(http.StatusConflict, string(code), format, args...)
}

// TooManyRequests is a response 429. wait is sent in Retry-After.
func TooManyRequests(wait time.Duration, format string, args ...any) error {
	r := Reject(http.StatusTooManyRequests, codeTooManyRequests, format+"; see Retry-After", args...)
	r.RetryAfter = wait
	return r
}

// TooManyGuesses is the response after too many wrong credentials. scope is what they were counted for.
func TooManyGuesses(wait time.Duration, scope string) error {
	return TooManyRequests(wait, "too many wrong credentials %s: check the credential", scope)
}

// NotFound is a response 404.
func NotFound(format string, args ...any) error {
	return Reject(http.StatusNotFound, codeNotFound, format, args...)
}

// TopicNotFound is the response for a topic that does not exist.
func TopicNotFound(name string) error { return NotFound("topic %q does not exist", Shorten(name)) }

// SubscriptionNotFound is the response for an event subscription that does not exist.
func SubscriptionNotFound(topic, name string) error {
	return NotFound("topic %q has no event subscription %q", Shorten(topic), Shorten(name))
}

// Problems are the mistakes in one request.
type Problems []ErrorDetail

// Add adds a mistake. The message begins with the target.
func (p *Problems) Add(code, target, format string, args ...any) {
	target = Shorten(target)
	*p = append(*p,
		ErrorDetail{Code: code, Target: target, Message: strings.TrimSpace(target + " " + fmt.Sprintf(format, args...))})
}

// Value adds a wrong value.
func (p *Problems) Value(target, format string, args ...any) {
	p.Add(codeInvalidValue, target, format, args...)
}

// Check adds the error of a check in package policy, which is a ValidationError; nil adds nothing.
func (p *Problems) Check(err error) {
	var invalid *policy.ValidationError
	switch {
	case errors.As(err, &invalid):
		p.Value(invalid.Field, "%s", invalid.Message)
	case err != nil:
		p.Value("", "a value of the request is invalid")
	}
}

// Err is the response with all mistakes; nil if there are none. Its message is the first one's.
func (p Problems) Err() error {
	if len(p) == 0 {
		return nil
	}
	return &RejectionError{Status: http.StatusBadRequest, Code: CodeInvalidRequest, Message: p[0].Message, Details: p}
}

// Invalid is the response to one wrong value.
func Invalid(target, format string, args ...any) error {
	var p Problems
	p.Value(target, format, args...)
	return p.Err()
}

// Write writes the response.
func (r *RejectionError) Write(c echo.Context) error {
	header := c.Response().Header()
	switch r.Status {
	case http.StatusUnauthorized:
		header.Set(echo.HeaderWWWAuthenticate, `Bearer realm="postrider"`)
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		header.Set(echo.HeaderRetryAfter, strconv.Itoa(max(1, int(math.Ceil(r.RetryAfter.Seconds())))))
	}
	if c.Request().Method == http.MethodHead {
		return c.NoContent(r.Status)
	}
	return c.JSON(r.Status, ErrorResponse{Error: Error{Code: r.Code, Message: r.Message, Details: Shown(r.Details)}})
}

// ResponseTo is the response to an error; nil for an error that the client must not see.
func ResponseTo(err error, c echo.Context) *RejectionError {
	if rejected, ok := errors.AsType[*RejectionError](err); ok {
		return rejected
	}
	if parse, ok := errors.AsType[*event.Error](err); ok {
		return EventRejection(parse, fmt.Sprintf("events[%d]", parse.Index))
	}
	if router, ok := errors.AsType[*echo.HTTPError](err); ok {
		return routerRejection(router, c.Request())
	}
	if function, ok := errors.AsType[*postgres.FunctionError](err); ok {
		return functionRejection(function)
	}
	if query, ok := errors.AsType[*sqlquery.Error](err); ok {
		message := query.Message
		if query.Position > 0 {
			message += fmt.Sprintf(" (at character %d)", query.Position)
		}
		if query.Hint != "" {
			message += ". " + query.Hint
		}
		r := Reject(http.StatusBadRequest, codeInvalidQuery, "%s", message)
		r.Details = []ErrorDetail{{Code: codeInvalidQuery, Target: "sql", Message: message}}
		return r
	}
	return databaseRejection(err)
}

// EventRejection is the response to an invalid event. target is the event's path in the request.
func EventRejection(e *event.Error, target string) *RejectionError {
	r := Reject(e.Status, e.Code, "%s", e.About(target))
	if e.Index < 0 {
		return r
	}
	if e.Field != "" {
		target += "." + e.Field
	}
	r.Details = []ErrorDetail{{Code: e.Code, Target: target, Message: r.Message}}
	return r
}

// routerRejection is the response to a request without a route.
func routerRejection(e *echo.HTTPError, r *http.Request) *RejectionError {
	switch {
	case e.Code == http.StatusNotFound && r.URL.Path == "/": // typed into a browser
		return Reject(e.Code, codeNotFound, "/ does not exist; the dashboard is at /ui/, and /openapi.yaml lists all "+
			"operations")
	case e.Code == http.StatusNotFound:
		return Reject(e.Code, codeNotFound, "%s does not exist; /openapi.yaml lists all operations", Shorten(r.URL.Path))
	case e.Code == http.StatusMethodNotAllowed:
		return Reject(e.Code, "MethodNotAllowed", "%s is not allowed at %s; /openapi.yaml lists all operations",
			Shorten(r.Method), Shorten(r.URL.Path))
	case e.Code == http.StatusRequestEntityTooLarge:
		return Reject(e.Code, event.CodePayloadTooLarge, "the request is too large")
	case e.Code >= http.StatusInternalServerError:
		return nil
	}
	text := http.StatusText(e.Code)
	return Reject(e.Code, strings.ReplaceAll(text, " ", ""), "%s", text)
}

func databaseRejection(err error) *RejectionError {
	unavailable := func(message string) *RejectionError {
		return Reject(http.StatusServiceUnavailable, CodeUnavailable, "%s", message)
	}
	var busy *postgres.BusyError
	var overload *publish.OverloadError
	switch {
	case errors.As(err, &overload):
		r := unavailable(overload.Error())
		r.RetryAfter = overloadRetry
		return r
	case errors.As(err, &busy):
		r := Reject(http.StatusServiceUnavailable, CodeUnavailable, "%s", busy.Error())
		if busy.Own {
			r.Status, r.Code = http.StatusTooManyRequests, codeTooManyRequests
		}
		r.RetryAfter = postgres.BusyWait
		return r
	case postgres.IsDiskFull(err):
		return unavailable("the database's disk is full; nothing was stored; retry later")
	case errors.Is(err, postgres.ErrNotFound):
		return Reject(http.StatusNotFound, codeNotFound, "an object that the request names does not exist")
	case errors.Is(err, catalog.ErrSystemTopic):
		return RejectConflict(ConflictCodeSystemTopic, "topic %q belongs to postrider: it has no access keys, and cannot "+
			"be deleted", catalog.SystemTopic)
	case errors.Is(err, sqlquery.ErrBusy):
		return &RejectionError{
			Status: http.StatusTooManyRequests, Code: codeTooManyRequests, Message: sqlquery.ErrBusy.Error(),
			RetryAfter: queryRetry,
		}
	case errors.Is(err, sqlquery.ErrDeadline), errors.Is(err, sqlquery.ErrTooLarge):
		return Reject(http.StatusBadRequest, codeInvalidQuery, "%v; limit its rows and its time range", err)
	case errors.Is(err, sqlquery.ErrNotConfigured):
		return RejectConflict(ConflictCodeQueriesNotSetUp, "%v", err)
	case errors.Is(err, postgres.ErrLocked):
		return unavailable("another transaction keeps a table locked; end it, then retry; pg_stat_activity lists it")
	case errors.Is(err, postgres.ErrTooSlow):
		return unavailable("the query took too long; request a shorter time span, or one event subscription")
	case errors.Is(err, postgres.ErrConflict):
		return RejectConflict(ConflictCodeConcurrentChange, "another request changed the object; read it again and retry")
	case errors.Is(err, publish.ErrUnauthorized):
		return Reject(http.StatusUnauthorized, codeUnauthorized, "the credential is not accepted")
	case postgres.IsValueError(err) && !errors.Is(err, postgres.ErrPoison): // for events, with their own code
		if e, ok := errors.AsType[*postgres.FunctionError](postgres.ValueError(err)); ok {
			return functionRejection(e)
		}
		return nil
	case errors.Is(err, postgres.ErrPoison):
		return Reject(http.StatusBadRequest, event.CodeInvalidEvent, "PostgreSQL cannot store this data")
	case errors.Is(err, pull.ErrTooManyReceiversOfTopic):
		return &RejectionError{
			Status: http.StatusTooManyRequests, Code: codeTooManyRequests, Message: pull.ErrTooManyReceiversOfTopic.Error(),
		}
	case errors.Is(err, pull.ErrTooManyReceivers):
		return unavailable("too many receivers wait on this node; retry later")
	case errors.Is(err, postgres.ErrUnavailable), postgres.IsOutage(err), errors.Is(err, context.Canceled):
		return unavailable("database unavailable; retry later")
	default:
		return nil
	}
}

// functionRejection is the response to the rejection by a function of the database.
func functionRejection(e *postgres.FunctionError) *RejectionError {
	switch {
	case errors.Is(e, postgres.ErrNotFound):
		return Reject(http.StatusNotFound, codeNotFound, "%s", e.Message)
	case errors.Is(e, postgres.ErrInvalid):
		r := Reject(http.StatusBadRequest, CodeInvalidRequest, "%s", e.Message)
		r.Details = []ErrorDetail{{Code: codeInvalidValue, Target: e.Field, Message: e.Message}}
		return r
	default:
		return RejectConflict(conflictCode(e), "%s", e.Message)
	}
}

// conflictCodes are the codes of conflicts by the words of the database's functions.
var conflictCodes = map[string]ConflictCode{
	"paused":        ConflictCodeSubscriptionPaused,
	"resuming":      ConflictCodeSubscriptionResuming,
	"probation":     ConflictCodeSubscriptionInProbation,
	"expired":       ConflictCodeSubscriptionExpired,
	"deleted":       ConflictCodeSubscriptionDeleted,
	"not_validated": ConflictCodeEndpointNotValidated,
	"ended":         ConflictCodeDeliveryEnded,
	"running":       ConflictCodeAttemptInProgress,
	"event_gone":    ConflictCodeEventGone,
	"erased":        ConflictCodeEventErased,
	"callback":      ConflictCodeNoCallback,
	"pending":       ConflictCodeDeliveryPending,
	"not_routed":    ConflictCodeEventNotRouted,
	"not_matched":   ConflictCodeEventNotMatched,
	"redelivered":   ConflictCodeDeadLetterRedelivered,
	"exporting":     ConflictCodeDeadLetterExporting,
	"schema":        ConflictCodeSchemaMismatch,
	"topic_deleted": ConflictCodeTopicDeleted,
	"operation":     ConflictCodeOperationRunning,
}

func conflictCode(e *postgres.FunctionError) ConflictCode {
	switch {
	case errors.Is(e, access.ErrLastAdmin):
		return ConflictCodeLastAdmin
	case errors.Is(e, postgres.ErrNameTaken):
		return ConflictCodeNameTaken
	case errors.Is(e, catalog.ErrTopicExists):
		return ConflictCodeTopicExists
	}
	return cmp.Or(conflictCodes[e.Conflict], ConflictCodeConcurrentChange)
}

// Shorten cuts the client's text for a message: a path can have 64 KiB.
func Shorten(s string) string {
	const most = 128
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

// PathValue is a decoded path parameter. Echo matches the encoded path if the client encoded more than necessary.
func PathValue(c echo.Context, name string) string {
	value := c.Param(name)
	if c.Request().URL.RawPath == "" {
		return value
	}
	if decoded, err := url.PathUnescape(value); err == nil {
		return decoded
	}
	return value
}

// Storable reports whether PostgreSQL can store s. No object has a name that PostgreSQL cannot store.
func Storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
