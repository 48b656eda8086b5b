package server

import (
	"context"
	"errors"
	"slices"

	"postrider/policy"
	"postrider/store"
)

// deliveryAttributes reads and judges custom headers. A secret that is to be kept is looked for here only so that one answer
// names all mistakes; the store looks again. Its error is the database's.
func (m *management) deliveryAttributes(ctx context.Context, found *problems, topic, name string, given *[]DeliveryAttributeSettings) ([]policy.DeliveryAttribute, error) {
	list := attributesOf(optional(given, nil))
	var stored []policy.DeliveryAttribute
	if storable(name) && slices.ContainsFunc(list, func(a policy.DeliveryAttribute) bool { return a.Withheld() }) {
		switch sub, err := m.store.SubscriptionOf(ctx, topic, name); {
		case err == nil:
			stored = sub.DeliveryAttributes
		case !errors.Is(err, store.ErrNotFound):
			return nil, err
		}
	}
	mistakes := m.headerLimits.Mistakes(list, stored)
	for i := range mistakes {
		found.check(&mistakes[i])
	}
	return list, nil
}

func attributesOf(given []DeliveryAttributeSettings) []policy.DeliveryAttribute {
	list := make([]policy.DeliveryAttribute, len(given))
	for i, a := range given {
		p := a.Properties
		list[i] = policy.DeliveryAttribute{
			Name: a.Name, Type: policy.DeliveryAttributeType(a.Type), Value: p.Value, IsSecret: optional(p.IsSecret, false), SourceField: optional(p.SourceField, ""),
		}
	}
	return list
}

// statedAttributes are custom headers as they were put, secrets included.
func statedAttributes(list []policy.DeliveryAttribute) *[]DeliveryAttributeSettings {
	stated := make([]DeliveryAttributeSettings, len(list))
	for i, a := range list {
		stated[i].Name, stated[i].Type = a.Name, DeliveryAttributeType(a.Type)
		if a.Type == policy.AttributeDynamic {
			stated[i].Properties.SourceField = &a.SourceField
			continue
		}
		stated[i].Properties.Value, stated[i].Properties.IsSecret = a.Value, &a.IsSecret
	}
	return &stated
}

// attributesJSON shows custom headers; secrets only where they are revealed.
func attributesJSON(list []policy.DeliveryAttribute, reveal bool) []DeliveryAttribute {
	shown := make([]DeliveryAttribute, len(list))
	for i, a := range list {
		shown[i] = DeliveryAttribute{Name: a.Name, Type: DeliveryAttributeType(a.Type)}
		if a.Type == policy.AttributeDynamic {
			shown[i].Properties = DynamicDeliveryAttribute{SourceField: a.SourceField}
			continue
		}
		properties := StaticDeliveryAttribute{IsSecret: a.IsSecret}
		if reveal || !a.IsSecret {
			properties.Value = a.Value
		}
		shown[i].Properties = properties
	}
	return shown
}

// RevealSubscriptionEndpoint answers POST /v1/topics/{topic}/subscriptions/{subscription}/getFullUrl.
func (m *management) RevealSubscriptionEndpoint(ctx context.Context, r RevealSubscriptionEndpointRequestObject) (RevealSubscriptionEndpointResponseObject, error) {
	sub, err := reveal(ctx, r.Topic, r.Subscription, m.store.RevealEndpoint)
	if err != nil {
		return nil, err
	}
	return RevealSubscriptionEndpoint200JSONResponse{EndpointUrl: sub.EndpointURL}, nil
}

// RevealSubscriptionHeaders answers POST /v1/topics/{topic}/subscriptions/{subscription}/getDeliveryAttributes.
func (m *management) RevealSubscriptionHeaders(ctx context.Context, r RevealSubscriptionHeadersRequestObject) (RevealSubscriptionHeadersResponseObject, error) {
	sub, err := reveal(ctx, r.Topic, r.Subscription, m.store.RevealDeliveryAttributes)
	if err != nil {
		return nil, err
	}
	return RevealSubscriptionHeaders200JSONResponse{Value: attributesJSON(sub.DeliveryAttributes, true)}, nil
}

func reveal(ctx context.Context, topic, name string, ask func(ctx context.Context, topic, name string) (*store.Subscription, error)) (*store.Subscription, error) {
	if !storable(topic) || !storable(name) {
		return nil, subscriptionNotFound(topic, name)
	}
	sub, err := ask(ctx, topic, name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, subscriptionNotFound(topic, name)
	}
	return sub, err
}
