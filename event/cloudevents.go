package event

import "postrider/jsonscan"

// specVersion is the CloudEvents version accepted and delivered. 1.0.1 and 1.0.2 write "1.0" too; 0.3 has other
// attributes.
const specVersion = "1.0"

// readCloudEvent fills e from a CloudEvent in the JSON format. Source: CNCF, CloudEvents 1.0.2, "Context Attributes";
// JSON event format 1.0.2, section 2.2: an attribute of null is unset.
func readCloudEvent(f *fields, e *Event) (err *Error) {
	version, err := f.text("specversion", required)
	if err != nil {
		return err
	}
	if string(version) != specVersion {
		return f.refuse("specversion", "must be %q", specVersion)
	}
	if e.ID, err = f.str("id", required); err != nil {
		return err
	}
	if e.Source, err = f.str("source", required); err != nil {
		return err
	}
	if e.Type, err = f.str("type", required); err != nil {
		return err
	}
	if e.Subject, err = f.str("subject", optionalLong); err != nil {
		return err
	}
	if e.Time, err = f.time("time", optional); err != nil {
		return err
	}
	if _, err = f.text("datacontenttype", optional); err != nil {
		return err
	}
	if _, err = f.text("dataschema", optionalLong); err != nil {
		return err
	}
	if err = checkData(f); err != nil {
		return err
	}
	if err = checkExtensions(f); err != nil {
		return err
	}
	e.Trace = f.trace()
	return nil
}

// checkData lets an event carry data or data_base64, not both: an endpoint could not tell which is meant. A data of
// null is an explicit payload. Source: CNCF, JSON event format 1.0.2, section 3.1.1.
func checkData(f *fields) *Error {
	encoded, ok := f.given("data_base64")
	if !ok {
		return nil
	}
	if _, both := f.raw("data"); both {
		return f.refuse("data_base64", "must not stand beside data")
	}
	if encoded[0] != '"' {
		return f.refuse("data_base64", "must be a string, is %s", kind(encoded[0]))
	}
	if text, _ := jsonscan.Unescape(encoded[1 : len(encoded)-1]); !isBase64(text) {
		return f.refuse("data_base64", "must be base64 with padding")
	}
	return nil
}

// checkExtensions checks every member that is not an attribute of the specification. The length is Event Grid's limit
// and the specification's advice (section "Naming Conventions"); a longer name would not survive as a header.
func checkExtensions(f *fields) *Error {
	for _, m := range f.members {
		name := string(m.name)
		if isAttribute(name) {
			continue
		}
		if !isExtensionName(name) {
			return f.refuse(name, "an extension attribute's name must be 1 to 20 characters of a-z and 0-9")
		}
		if first := f.src[m.value.start]; first == '{' || first == '[' {
			return f.refuse(name, "an extension attribute must be a string, a number or a boolean, is %s", kind(first))
		}
	}
	return nil
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
