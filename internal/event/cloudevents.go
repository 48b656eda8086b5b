package event

import "postrider/internal/jsonscan"

// specVersion is the CloudEvents version accepted and delivered. 1.0.1 and 1.0.2 write "1.0" too; 0.3 has other
// attributes.
const specVersion = "1.0"

// readCloudEvent fills e from a CloudEvent in the JSON format. Source: CNCF, CloudEvents 1.0.2, "Context Attributes";
// JSON event format 1.0.2, section 2.2: an attribute of null is unset.
func readCloudEvent(f *fields, e *Event) {
	if version := f.text("specversion", required); string(version) != specVersion {
		f.reject("specversion", "must be %q", specVersion)
	}
	e.ID = f.str("id", required)
	e.Source = f.str("source", required)
	e.Type = f.str("type", required)
	e.Subject = f.str("subject", optionalLong)
	e.Time = f.time("time", optional)
	f.text("datacontenttype", optional)
	f.text("dataschema", optionalLong)
	checkData(f)
	// All other members are extension attributes. The length of their names is Event Grid's limit and the
	// specification's advice (section "Naming Conventions").
	for _, m := range f.members {
		name := string(m.name)
		if isAttribute(name) {
			continue
		}
		if !isExtensionName(name) {
			f.reject(name, "an extension attribute's name must be 1 to 20 characters of a-z and 0-9")
		} else if first := f.src[m.value.start]; first == '{' || first == '[' {
			f.reject(name, "an extension attribute must be a string, a number or a boolean, is %s", kind(first))
		}
	}
	parent, _ := f.raw(memberTraceParent)
	state, _ := f.raw(memberTraceState)
	e.Trace = newTrace(plain(parent), plain(state))
}

// checkData rejects an event with both data and data_base64. A data of null is an explicit payload. Source: CNCF, JSON
// event format 1.0.2, section 3.1.1.
func checkData(f *fields) {
	encoded, ok := f.given("data_base64")
	if !ok {
		return
	}
	if _, both := f.raw("data"); both {
		f.reject("data_base64", "must be absent if there is data")
	}
	if encoded[0] != '"' {
		f.reject("data_base64", "must be a string, is %s", kind(encoded[0]))
	} else if text, _ := jsonscan.Unescape(encoded[1 : len(encoded)-1]); !isBase64(text) {
		f.reject("data_base64", "must be base64 with padding")
	}
}

func isAttribute(name string) bool {
	switch name {
	case "specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data", "data_base64":
		return true
	}
	return false
}

func isExtensionName(name string) bool {
	if len(name) < 1 || len(name) > 20 {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || 'z' < c) && (c < '0' || '9' < c) {
			return false
		}
	}
	return true
}
