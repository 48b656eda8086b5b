package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"

	"postrider/internal/event"
	"postrider/internal/terminal"
	"postrider/internal/version"
	"postrider/jobs"
	"postrider/policy"
	"postrider/server"
)

// tracing exports a span for each publish request, with its commit, and for each delivery attempt, in the publisher's
// trace. Spans are created from reports after the work: without tracing they cost nothing. All requests to endpoints
// therefore have the publisher's traceparent.
type tracing struct {
	provider *trace.TracerProvider
	tracer   api.Tracer
}

// startTracing reads OpenTelemetry's environment variables. It returns nil if they name no collector.
func startTracing(ctx context.Context, node string) (*tracing, error) {
	collector := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	if collector == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") ||
		os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil // off
	}
	if protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"),
		"http/protobuf"); protocol != "http/protobuf" {
		return nil, terminal.Usagef("OTEL_EXPORTER_OTLP_PROTOCOL %q: must be http/protobuf", protocol)
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("set up tracing: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "postrider"),
		attribute.String("service.version", version.Number()),
		attribute.String("service.instance.id", node)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("set up tracing: %w", err)
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(about))
	return &tracing{provider: provider, tracer: provider.Tracer("postrider")}, nil
}

// stop sends the remaining spans.
func (t *tracing) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, httpGrace)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // spans that the collector rejects are lost
}

// withinTrace returns a context in the trace of an event's publisher.
func withinTrace(t event.Trace) context.Context {
	return propagation.TraceContext{}.Extract(context.Background(),
		propagation.MapCarrier{"traceparent": t.Parent, "tracestate": t.State})
}

// published reports a publish request. Its parent is the first event's trace.
func (t *tracing) published(r server.PublishReport) {
	if len(r.Events) == 0 {
		return
	}
	end := time.Now()
	ctx, span := t.tracer.Start(withinTrace(r.Events[0].Trace), "publish "+r.Topic, api.WithSpanKind(api.SpanKindServer),
		api.WithTimestamp(end.Add(-r.Took)), api.WithAttributes(
			attribute.String("messaging.system", "postrider"), attribute.String("messaging.operation.type", "receive"),
			attribute.String("messaging.destination.name", r.Topic),
			attribute.Int("messaging.batch.message_count", len(r.Events)),
			attribute.String("messaging.message.id", strings.ToValidUTF8(r.Events[0].ID, "\ufffd"))))
	_, commit := t.tracer.Start(ctx, "commit", api.WithTimestamp(end.Add(-r.Commit)))
	commit.End(api.WithTimestamp(end))
	span.End(api.WithTimestamp(end))
}

// attempted reports a delivery attempt.
func (t *tracing) attempted(r jobs.AttemptReport) {
	end := time.Now()
	_, span := t.tracer.Start(withinTrace(r.Trace), "deliver "+r.Topic+"/"+r.Subscription,
		api.WithSpanKind(api.SpanKindClient), api.WithTimestamp(end.Add(-r.Duration)), api.WithAttributes(
			attribute.String("messaging.system", "postrider"), attribute.String("messaging.operation.type", "send"),
			attribute.String("messaging.destination.name", r.Topic),
			attribute.String("messaging.consumer.group.name", r.Subscription),
			attribute.Int("messaging.batch.message_count", r.Events),
			attribute.String("messaging.message.id", strings.ToValidUTF8(r.EventID, "\ufffd")),
			attribute.Int("http.request.resend_count", r.Number-1),
			attribute.String("url.full", r.Endpoint), attribute.String("postrider.outcome", string(r.Outcome)),
			attribute.String("postrider.verdict", string(r.Verdict.Action))))
	if r.Result.Status != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", r.Result.Status))
	}
	if r.Verdict.Action != policy.Delivered {
		span.SetAttributes(attribute.String("error.type", string(r.Outcome)))
		span.SetStatus(codes.Error, r.Verdict.Why.String())
	}
	span.End(api.WithTimestamp(end))
}

// both returns a function that calls two; the first may be nil.
func both[T any](first, second func(T)) func(T) {
	if first == nil {
		return second
	}
	return func(report T) {
		first(report)
		second(report)
	}
}
