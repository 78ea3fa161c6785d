// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValidateName(t *testing.T) {
	cases := map[string]struct {
		reason string
		name   string
		want   error
	}{
		"a letter":           {"the shortest name", "a", nil},
		"digits":             {"RFC 1123 allows a digit first", "1", nil},
		"a hyphen inside":    {"labels may hold hyphens", "store-1", nil},
		"63 bytes":           {"the longest label", strings.Repeat("a", 63), nil},
		"64 bytes":           {"one more than a label", strings.Repeat("a", 64), ErrName},
		"empty":              {"no name is not a name", "", ErrName},
		"a hyphen first":     {"would read as a flag", "-a", ErrName},
		"a hyphen last":      {"not a label", "a-", ErrName},
		"upper case":         {"one spelling per name", "Store1", ErrName},
		"a dot":              {"a subdomain is not a label", "store.1", ErrName},
		"a slash":            {"would split the path", "a/b", ErrName},
		"a wildcard":         {"names match exactly", "*", ErrName},
		"NUL":                {"C readers stop there", "store1\x00", ErrName},
		"a look-alike":       {"Cyrillic e", "stor\u04351", ErrName},
		"a newline":          {"log injection", "store1\n", ErrName},
		"an escape":          {"never decoded", "store%31", ErrName},
		"an underscore":      {"not in DNS labels", "store_1", ErrName},
		"a space at end":     {"never trimmed", "store1 ", ErrName},
		"two dots":           {"path traversal", "..", ErrName},
		"a full-width digit": {"unicode digits are not digits", "store\uff11", ErrName},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := ValidateName(tc.name); !errors.Is(err, tc.want) {
				t.Errorf("%s: ValidateName(%q) = %v, want %v", tc.reason, tc.name, err, tc.want)
			}
		})
	}
}

func TestValidateID(t *testing.T) {
	cases := map[string]struct {
		reason string
		id     string
		want   error
	}{
		"a UUID":            {"canonical", hubID, nil},
		"upper case":        {"one spelling per id", strings.ToUpper(hubID), ErrID},
		"no hyphens":        {"one spelling per id", strings.ReplaceAll(hubID, "-", ""), ErrID},
		"braces":            {"Microsoft's spelling", "{" + hubID + "}", ErrID},
		"a URN":             {"RFC 9562's URN", "urn:uuid:" + hubID, ErrID},
		"a hyphen moved":    {"right length, wrong place", "6ff1b52e0-c2c-4d6a-9d5b-2f2f0f3a9a11", ErrID},
		"not hexadecimal":   {"right length, wrong digit", strings.Replace(hubID, "f", "g", 1), ErrID},
		"empty":             {"no id is not an id", "", ErrID},
		"one digit short":   {"prefix of an id", hubID[:35], ErrID},
		"one digit more":    {"id is a prefix", hubID + "1", ErrID},
		"a hyphen as digit": {"right length, hyphen in a group", "-ff1b52e-0c2c-4d6a-9d5b-2f2f0f3a9a11", ErrID},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := ValidateID(tc.id); !errors.Is(err, tc.want) {
				t.Errorf("%s: ValidateID(%q) = %v, want %v", tc.reason, tc.id, err, tc.want)
			}
		})
	}
}

func TestNewIDIsValidAndUnique(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := NewID()
		if err := ValidateID(id); err != nil {
			t.Fatal(err)
		}
		if id[14] != '4' || !strings.ContainsRune("89ab", rune(id[19])) {
			t.Fatalf("NewID() = %s, want version 4 and variant 10", id)
		}
		if seen[id] {
			t.Fatalf("NewID() = %s a second time", id)
		}
		seen[id] = true
	}
}

func TestParseReadsWhatStringWrites(t *testing.T) {
	hub := Hub{ID: hubID}
	if got := hub.URI().String(); got != hub.String() {
		t.Errorf("hub URI() = %s, String() = %s", got, hub)
	}
	if got := store1.URI().String(); got != store1.String() {
		t.Errorf("cluster URI() = %s, String() = %s", got, store1)
	}
	gotHub, err := ParseHub(hub.String())
	if err != nil || gotHub != hub {
		t.Errorf("ParseHub(%s) = %v, %v", hub, gotHub, err)
	}
	gotCluster, err := ParseCluster(store1.String())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(store1, gotCluster); diff != "" {
		t.Errorf("ParseCluster(%s): -want, +got:\n%s", store1, diff)
	}
}

func TestParseRefusesForeignURI(t *testing.T) {
	const cluster = "spiffe://" + hubID + "/cluster/store1/" + clusterID
	cases := map[string]struct {
		reason string
		uri    string
	}{
		"empty":                      {"nothing", ""},
		"another scheme":             {"https is not SPIFFE", strings.Replace(cluster, "spiffe", "https", 1)},
		"upper case scheme":          {"net/url lowers it, we do not", strings.Replace(cluster, "spiffe", "SPIFFE", 1)},
		"upper case hub id":          {"one spelling per hub", strings.Replace(cluster, hubID, strings.ToUpper(hubID), 1)},
		"upper case path":            {"one spelling per path", strings.Replace(cluster, "cluster", "Cluster", 1)},
		"an upper case name":         {"one spelling per name", strings.Replace(cluster, "store1", "Store1", 1)},
		"a query":                    {"nothing follows the path", cluster + "?a=b"},
		"an empty query":             {"net/url keeps only a flag", cluster + "?"},
		"a fragment":                 {"nothing follows the path", cluster + "#a"},
		"an empty fragment":          {"net/url forgets it", cluster + "#"},
		"user information":           {"the authority is the hub id", strings.Replace(cluster, "://", "://u:p@", 1)},
		"a port":                     {"the authority is the hub id", strings.Replace(cluster, hubID, hubID+":443", 1)},
		"an empty port":              {"the authority is the hub id", strings.Replace(cluster, hubID, hubID+":", 1)},
		"a trailing slash":           {"an empty part", cluster + "/"},
		"a doubled slash":            {"an empty part", strings.Replace(cluster, "/cluster/", "//cluster/", 1)},
		"an empty name":              {"an empty part", strings.Replace(cluster, "store1", "", 1)},
		"an empty cluster id":        {"an empty part", strings.Replace(cluster, clusterID, "", 1)},
		"an empty hub id":            {"an empty part", strings.Replace(cluster, hubID, "", 1)},
		"no cluster id":              {"a part is missing", strings.TrimSuffix(cluster, "/"+clusterID)},
		"a part more":                {"one too many", cluster + "/x"},
		"an escaped letter":          {"net/url decodes it", strings.Replace(cluster, "store1", "stor%651", 1)},
		"an escaped slash":           {"net/url decodes it", strings.Replace(cluster, "/store1", "%2fstore1", 1)},
		"an escaped NUL":             {"C readers stop there", strings.Replace(cluster, "store1", "store1%00", 1)},
		"a NUL":                      {"C readers stop there", strings.Replace(cluster, "store1", "store1\x00", 1)},
		"dot segments":               {"never resolved", strings.Replace(cluster, "/store1", "/x/../store1", 1)},
		"a leading space":            {"never trimmed", " " + cluster},
		"a trailing newline":         {"never trimmed", cluster + "\n"},
		"a backslash":                {"browsers read it as a slash", strings.Replace(cluster, "/cluster/", "\\cluster/", 1)},
		"a wildcard":                 {"identities match exactly", strings.Replace(cluster, "store1", "*", 1)},
		"a full-width slash":         {"normalisation makes it a slash", strings.Replace(cluster, "/store1", "\uff0fstore1", 1)},
		"a look-alike":               {"Cyrillic letters", strings.Replace(cluster, "store1", "st\u043er\u04351", 1)},
		"an opaque URI":              {"no authority", strings.Replace(cluster, "://", ":", 1)},
		"a path parameter":           {"some routers cut it", cluster + ";a=b"},
		"invalid UTF-8":              {"bytes are compared", strings.Replace(cluster, "store1", "store\xff", 1)},
		"another word for a cluster": {"only the two kinds exist", strings.Replace(cluster, "/cluster/", "/spoke/", 1)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got, err := ParseCluster(tc.uri); !errors.Is(err, ErrURI) {
				t.Errorf("%s: ParseCluster(%q) = %v, %v, want %v", tc.reason, tc.uri, got, err, ErrURI)
			}
			hub := strings.Replace(tc.uri, "/cluster/store1/"+clusterID, "/hub", 1)
			if hub == (Hub{ID: hubID}).String() {
				t.Fatalf("the case does not change the URI of a hub")
			}
			if got, err := ParseHub(hub); !errors.Is(err, ErrURI) {
				t.Errorf("%s: ParseHub(%q) = %v, %v, want %v", tc.reason, hub, got, err, ErrURI)
			}
		})
	}
}

func TestParseClusterRefusesHub(t *testing.T) {
	if got, err := ParseHub(store1.String()); !errors.Is(err, ErrURI) {
		t.Errorf("ParseHub(%s) = %v, %v, want %v", store1, got, err, ErrURI)
	}
	hub := Hub{ID: hubID}
	if got, err := ParseCluster(hub.String()); !errors.Is(err, ErrURI) {
		t.Errorf("ParseCluster(%s) = %v, %v, want %v", hub, got, err, ErrURI)
	}
}
