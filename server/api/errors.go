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

	"postrider/access"
	"postrider/catalog"
	"postrider/event"
	"postrider/jobs/publish"
	"postrider/policy"
	"postrider/postgres"
)

// Codes of an error answer, beside those of package event.
const (
	CodeInvalidRequest       = "InvalidRequest"
	codeInvalidValue         = "InvalidValue"
	codeUnknownMember        = "UnknownMember"
	codeUnauthorized         = "Unauthorized"
	codeForbidden            = "Forbidden"
	CodeNotFound             = "NotFound"
	codeMethodNotAllowed     = "MethodNotAllowed"
	codePreconditionFailed   = "PreconditionFailed"
	CodeMisdirected          = "MisdirectedRequest"
	CodeTooManyRequests      = "TooManyRequests"
	CodeUnsupportedMediaType = event.CodeUnsupportedMediaType
	CodeInternal             = "InternalError"
	CodeUnavailable          = "ServiceUnavailable"
	CodeNotReady             = "NotReady"
)

// ErrorAnswer is the body of every error response.
type ErrorAnswer struct {
	Error Error `json:"error"`
}

// Error says what was rejected, and why.
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

// RejectionError is an error whose every word may be shown to the caller.
type RejectionError struct {
	Status        int
	Code, Message string
	Details       []ErrorDetail
	// actor is whose credential was right and is not allowed this; "" for none.
	Actor string
	// retryAfter is sent with 429, in whole seconds.
	RetryAfter time.Duration
}

// Error returns the message.
func (r *RejectionError) Error() string { return r.Message }

// Refuse is an error response whose message may be shown to the client.
func Refuse(status int, code, format string, args ...any) *RejectionError {
	return &RejectionError{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// RejectUnauthorized is the response to a wrong credential, or to none.
func RejectUnauthorized(message string) error {
	return Refuse(http.StatusUnauthorized, codeUnauthorized, "%s", message)
}

// RejectForbidden answers a right credential that is not allowed what it asks for.
func RejectForbidden(actor, format string, args ...any) error {
	r := Refuse(http.StatusForbidden, codeForbidden, format, args...)
	r.Actor = actor
	return r
}

// RejectConflict answers what contradicts the state of things; openapi.yaml lists the codes.
func RejectConflict(code ConflictCode, format string, args ...any) *RejectionError {
	return Refuse(http.StatusConflict, string(code), format, args...)
}

// TooManyGuesses answers credentials that are not looked at, or were wrong once too often.
func TooManyGuesses(wait time.Duration, whose string) error {
	r := Refuse(http.StatusTooManyRequests, CodeTooManyRequests,
		"too many wrong credentials %s; wait for as long as Retry-After says, and check the credential", whose)
	r.RetryAfter = wait
	return r
}

// TopicNotFound is the response for a topic that does not exist.
func TopicNotFound(name string) error {
	return Refuse(http.StatusNotFound, CodeNotFound, "topic %q does not exist", Shorten(name))
}

// SubscriptionNotFound is the response for an event subscription that does not exist.
func SubscriptionNotFound(topic, name string) error {
	return Refuse(http.StatusNotFound, CodeNotFound, "topic %q has no event subscription %q", Shorten(topic),
		Shorten(name))
}

// Problems are the mistakes found in one request.
type Problems []ErrorDetail

// Add adds a mistake with its code.
func (p *Problems) Add(code, target, format string, args ...any) {
	target = Shorten(target)
	*p = append(*p,
		ErrorDetail{Code: code, Target: target, Message: strings.TrimSpace(target + " " + fmt.Sprintf(format, args...))})
}

// Value adds what is wrong with the value of target.
func (p *Problems) Value(target, format string, args ...any) {
	p.Add(codeInvalidValue, target, format, args...)
}

// Check adds err, which one of package policy's judges returned; nil adds nothing. They all return ValidationErrors;
// any other error refuses the request too, though it cannot say why.
func (p *Problems) Check(err error) {
	var invalid *policy.ValidationError
	switch {
	case errors.As(err, &invalid):
		p.Value(invalid.Field, "%s", invalid.Message)
	case err != nil:
		p.Value("", "the request holds a value that cannot be taken")
	}
}

// Err is the answer that names them all, its message being the first; nil when there are none.
func (p Problems) Err() error {
	if len(p) == 0 {
		return nil
	}
	return &RejectionError{Status: http.StatusBadRequest, Code: CodeInvalidRequest, Message: p[0].Message, Details: p}
}

// Invalid is the response for one value that is wrong.
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
	case http.StatusServiceUnavailable:
		header.Set(echo.HeaderRetryAfter, "1")
	case http.StatusTooManyRequests:
		header.Set(echo.HeaderRetryAfter, strconv.Itoa(int(math.Ceil(r.RetryAfter.Seconds()))))
	}
	if c.Request().Method == http.MethodHead {
		return c.NoContent(r.Status)
	}
	details := r.Details
	if details == nil {
		details = []ErrorDetail{}
	}
	return c.JSON(r.Status, ErrorAnswer{Error: Error{Code: r.Code, Message: r.Message, Details: details}})
}

// AnswerTo finds what may be said of err; nil when nothing may.
func AnswerTo(err error, c echo.Context) *RejectionError {
	var (
		refused *RejectionError
		parse   *event.Error
		router  *echo.HTTPError
	)
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &parse):
		return parseRejection(parse)
	case errors.As(err, &router):
		return routerRejection(router, c)
	default:
		return storeRejection(err)
	}
}

func parseRejection(e *event.Error) *RejectionError {
	answer := Refuse(e.Status, e.Code, "%s", e.Message)
	if e.Index < 0 {
		return answer
	}
	target := fmt.Sprintf("events[%d]", e.Index)
	if e.Field != "" {
		target += "." + e.Field
	}
	answer.Details = []ErrorDetail{{Code: e.Code, Target: target, Message: e.Message}}
	return answer
}

// routerRejection is the response to a request that no route takes.
func routerRejection(e *echo.HTTPError, c echo.Context) *RejectionError {
	r := c.Request()
	switch e.Code {
	case http.StatusNotFound:
		return Refuse(e.Code, CodeNotFound, "there is nothing at %s; /openapi.yaml lists what there is", Shorten(r.URL.Path))
	case http.StatusMethodNotAllowed:
		return Refuse(e.Code, codeMethodNotAllowed, "%s is not possible at %s; /openapi.yaml lists what is",
			Shorten(r.Method), Shorten(r.URL.Path))
	case http.StatusRequestEntityTooLarge:
		return Refuse(e.Code, event.CodePayloadTooLarge, "the request is too large")
	}
	if e.Code >= http.StatusInternalServerError {
		return nil
	}
	return Refuse(e.Code, strings.ReplaceAll(http.StatusText(e.Code), " ", ""), "%s", http.StatusText(e.Code))
}

func storeRejection(err error) *RejectionError {
	var no *postgres.FunctionError
	if errors.As(err, &no) {
		return functionRejection(no)
	}
	switch {
	case postgres.IsDiskFull(err):
		return Refuse(http.StatusServiceUnavailable, CodeUnavailable,
			"the database's disk is full; nothing was stored; try again later")
	case errors.Is(err, postgres.ErrNotFound):
		return Refuse(http.StatusNotFound, CodeNotFound, "what the request names does not exist")
	case errors.Is(err, catalog.ErrSystemTopic):
		return RejectConflict(ConflictCodeSystemTopic,
			"topic %q is postrider's own: it is there to be subscribed to; it cannot be deleted, and its access keys are "+
				"nobody's", catalog.SystemTopic)
	case errors.Is(err, postgres.ErrTooSlow):
		return Refuse(http.StatusServiceUnavailable, CodeUnavailable,
			"this could not be read in time; ask for less: a shorter time, or one event subscription")
	case errors.Is(err, postgres.ErrConflict):
		return RejectConflict(ConflictCodeConcurrentChange,
			"what the request changes was changed meanwhile; read it again, and try again")
	case errors.Is(err, publish.ErrUnauthorized):
		return Refuse(http.StatusUnauthorized, codeUnauthorized, "the credential is not accepted")
	case errors.Is(err, postgres.ErrPoison):
		return Refuse(http.StatusBadRequest, event.CodeInvalidEvent, "PostgreSQL cannot store this data")
	case errors.Is(err, postgres.ErrUnavailable), postgres.IsOutage(err), errors.Is(err, context.Canceled):
		return Refuse(http.StatusServiceUnavailable, CodeUnavailable, "the database cannot be asked now; try again")
	default:
		return nil
	}
}

// functionRejection words what a function of the store refuses.
func functionRejection(no *postgres.FunctionError) *RejectionError {
	switch {
	case errors.Is(no, postgres.ErrNotFound):
		return Refuse(http.StatusNotFound, CodeNotFound, "%s", no.Message)
	case errors.Is(no, postgres.ErrInvalid):
		r := Refuse(http.StatusBadRequest, CodeInvalidRequest, "%s", no.Message)
		r.Details = []ErrorDetail{{Code: codeInvalidValue, Target: no.Field, Message: no.Message}}
		return r
	default:
		return RejectConflict(conflictCode(no), "%s", no.Message)
	}
}

// conflictCodes are those of the conflicts that the database's functions name.
var conflictCodes = map[string]ConflictCode{
	"paused":        ConflictCodeSubscriptionPaused,
	"resuming":      ConflictCodeSubscriptionResuming,
	"probation":     ConflictCodeSubscriptionOnProbation,
	"expired":       ConflictCodeSubscriptionExpired,
	"deleted":       ConflictCodeSubscriptionDeleted,
	"not_validated": ConflictCodeEndpointNotValidated,
	"ended":         ConflictCodeDeliveryEnded,
	"running":       ConflictCodeAttemptInProgress,
	"event_gone":    ConflictCodeEventGone,
	"erased":        ConflictCodeEventErased,
	"redelivered":   ConflictCodeDeadLetterRedelivered,
	"exporting":     ConflictCodeDeadLetterExporting,
	"schema":        ConflictCodeSchemaMismatch,
	"operation":     ConflictCodeOperationRunning,
}

func conflictCode(no *postgres.FunctionError) ConflictCode {
	switch {
	case errors.Is(no, access.ErrLastAdmin):
		return ConflictCodeLastAdmin
	case errors.Is(no, postgres.ErrNameTaken):
		return ConflictCodeNameTaken
	case errors.Is(no, catalog.ErrTopicExists):
		return ConflictCodeTopicExists
	}
	return cmp.Or(conflictCodes[no.Conflict], ConflictCodeConcurrentChange)
}

// Shorten keeps a caller's own text from filling an answer: a path can be 64 KiB long.
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

// PathValue is a decoded part of the path. Echo matches the encoded path when the client encoded more than it had to.
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

// Storable reports whether PostgreSQL can be asked for s. Nothing has a name that cannot be stored.
func Storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
