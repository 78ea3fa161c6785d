// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// told is what accounts get, in words: their host, or why there is none.
func told(holdings map[string]HostAssignment) map[string]string {
	all := map[string]string{}
	for account, h := range holdings {
		all[account] = h.Host + text(h.Err)
	}
	return all
}

const (
	takenWords   = ": another account has it"
	foreignWords = ": hosts are an administrator's to give"
	absentWords  = ": annotation workers.spokelet.io/hosts of the namespace does not have it" + foreignWords
)

func TestAssignHosts(t *testing.T) {
	claim := func(account, host, allowed string, hour int) HostRequest {
		return HostRequest{Account: account, Host: host, Allowed: allowed, Created: at(hour).Time}
	}
	held := func(c HostRequest) HostRequest {
		c.Current = c.Host
		return c
	}
	const suffix = "workers.example"
	tests := map[string]struct {
		reason string
		claims []HostRequest
		suffix string
		want   map[string]string
	}{
		"nobody asks": {reason: "nothing is given", want: map[string]string{}},
		"a host that was given": {
			reason: "the administrator's choice", claims: []HostRequest{claim("1", "shop.example", "other.example, shop.example", 1)},
			want: map[string]string{"1": "shop.example"},
		},
		"a host of an application": {
			reason: "nobody gave it to the account", claims: []HostRequest{claim("1", "shop.example", "", 1)},
			want: map[string]string{"1": "host shop.example" + absentWords},
		},
		"a host that was given to another namespace": {
			reason: "it is that one's, also before it asks", claims: []HostRequest{claim("1", "shop.example", "", 1), claim("2", "", "shop.example", 2)},
			want: map[string]string{"1": "host shop.example" + absentWords, "2": ErrNoHost.Error()},
		},
		"of two the older has it, whole": {
			reason: "accounts share no origin", claims: []HostRequest{claim("1", "shop.example", "shop.example", 2), claim("2", "shop.example", "shop.example", 1)},
			want: map[string]string{"1": "host shop.example" + takenWords, "2": "shop.example"},
		},
		"of the same second the account decides": {
			reason: "times are in seconds", claims: []HostRequest{claim("2", "shop.example", "shop.example", 1), claim("1", "shop.example", "shop.example", 1)},
			want: map[string]string{"1": "shop.example", "2": "host shop.example" + takenWords},
		},
		"an older account that asks later": {
			reason: "who has a host keeps it", claims: []HostRequest{claim("1", "shop.example", "*.example", 1), held(claim("2", "shop.example", "*.example", 2))},
			want: map[string]string{"1": "host shop.example" + takenWords, "2": "shop.example"},
		},
		"a host that was withdrawn": {
			reason: "having had it does not count", claims: []HostRequest{held(claim("1", "shop.example", "", 1)), claim("2", "shop.example", "shop.example", 2)},
			want: map[string]string{"1": "host shop.example" + absentWords, "2": "shop.example"},
		},
		"an account that names another host": {
			reason: "it does not keep what it had", claims: []HostRequest{
				{Account: "1", Host: "b.example", Allowed: "*.example", Current: "a.example", Created: at(1).Time}, claim("2", "a.example", "*.example", 2),
			},
			want: map[string]string{"1": "b.example", "2": "a.example"},
		},
		"other cases and dots": {
			reason: "there is one spelling of a host", claims: []HostRequest{
				held(claim("1", "shop.example", "shop.example", 1)), claim("2", "Shop.example", "*.example", 2), claim("3", "shop.example.", "*.example", 2),
			},
			want: map[string]string{
				"1": "shop.example", "2": `spec.host: host "Shop.example": "Shop" is not 1 to 63 lower-case letters, digits and inner hyphens`,
				"3": `spec.host: host "shop.example.": "" is not 1 to 63 lower-case letters, digits and inner hyphens`,
			},
		},
		"an annotation that cannot be read": {
			reason: "it gives nothing", claims: []HostRequest{claim("1", "shop.example", "shop.example, *", 1)},
			want: map[string]string{"1": `annotation workers.spokelet.io/hosts of the namespace: host "*": "*" is not 1 to 63 lower-case letters, digits and inner hyphens`},
		},
		"own names": {
			reason: "each account has another one", suffix: suffix, claims: []HostRequest{claim("1", "", "", 1), claim("2", "", "", 1), claim("3", "3.workers.example", "", 1)},
			want: map[string]string{"1": "1.workers.example", "2": "2.workers.example", "3": "3.workers.example"},
		},
		"no host and no suffix": {
			reason: "a route without a host would be everybody's", claims: []HostRequest{claim("1", "", "shop.example", 1)},
			want: map[string]string{"1": ErrNoHost.Error()},
		},
		"the own name of another account": {
			reason: "nobody may give it, and age does not matter", suffix: suffix, claims: []HostRequest{
				claim("1", "2.workers.example", "2.workers.example, *.workers.example", 1), claim("2", "", "", 2), claim("3", "workers.example", "workers.example", 1),
			},
			want: map[string]string{
				"1": "host 2.workers.example: names of workers.example are the accounts' own" + foreignWords, "2": "2.workers.example",
				"3": "host workers.example: names of workers.example are the accounts' own" + foreignWords,
			},
		},
		"the end of a label is no suffix": {
			reason: "dots divide names", suffix: suffix, claims: []HostRequest{claim("1", "my-workers.example", "*.example", 1)},
			want: map[string]string{"1": "my-workers.example"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, told(AssignHosts(tc.claims, tc.suffix))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// Whatever accounts ask for, and whatever they had: no host has two of them, and none that has
// a host loses it to another one.
func TestHostIsAssignedOnce(t *testing.T) {
	for seed := range uint64(20 * seeds) {
		r := rand.New(rand.NewPCG(seed, 1))
		var claims []HostRequest
		for account := range 6 {
			one := func(of ...string) string { return of[r.IntN(len(of))] }
			claims = append(claims, HostRequest{
				Account: strconv.Itoa(account), Created: at(r.IntN(3)).Time,
				Host:    one("", "a.x.example", "b.x.example", "1.own.example", "A.x.example"),
				Allowed: one("", "a.x.example", "*.x.example", "*.own.example", "*.example"),
			})
		}
		first := AssignHosts(claims, "own.example")
		alone(t, seed, first)
		for i := range claims {
			claims[i].Current = first[claims[i].Account].Host
		}
		// Another one asks, older than all.
		claims = append(claims, HostRequest{Account: "9", Host: "a.x.example", Allowed: "*.x.example", Created: at(-1).Time})
		second := AssignHosts(claims, "own.example")
		alone(t, seed, second)
		for account, had := range first {
			if second[account].Host != had.Host {
				t.Errorf("order %d: %s had %q and has %+v", seed, account, had.Host, second[account])
			}
		}
	}
}

// alone checks that each account is alone on its host, or told why it has none.
func alone(t *testing.T, seed uint64, holdings map[string]HostAssignment) {
	t.Helper()
	owners := map[string]string{}
	for account, h := range holdings {
		if (h.Host == "") != (h.Err != nil) {
			t.Errorf("order %d: %s gets %+v", seed, account, h)
		}
		if other, taken := owners[h.Host]; taken && h.Host != "" {
			t.Errorf("order %d: %s belongs to %s and %s", seed, h.Host, account, other)
		}
		owners[h.Host] = account
	}
}

func TestHostErrorsAreDistinct(t *testing.T) {
	claims := []HostRequest{
		{Account: "0", Host: "x.example", Allowed: "x.example"},
		{Account: "1", Host: "x.example", Allowed: "x.example"},
		{Account: "2", Host: "x.example"}, {Account: "3"},
	}
	got := AssignHosts(claims, "")
	for account, want := range map[string]error{"1": ErrHostTaken, "2": ErrHostNotAllowed, "3": ErrNoHost} {
		if !errors.Is(got[account].Err, want) {
			t.Errorf("account %s is told %v, want %v", account, got[account].Err, want)
		}
	}
	if strings.Contains(got["1"].Err.Error(), "account 0") {
		t.Errorf("an account learns who has its host: %v", got["1"].Err)
	}
}

func TestParseHosts(t *testing.T) {
	long := strings.Repeat("a", 63)
	tests := map[string]struct {
		reason, text string
		has, hasNot  []string
		err          string
	}{
		"nothing":               {reason: "nobody gave any", text: "", hasNot: []string{"", "a.example", "example"}},
		"one":                   {reason: "a host is itself alone", text: "a.example", has: []string{"a.example"}, hasNot: []string{"b.example", "x.a.example", "example", "xa.example"}},
		"several":               {reason: "spaces do not count", text: "a.example,  b.example ,c", has: []string{"a.example", "b.example", "c"}, hasNot: []string{" b.example", "d"}},
		"a wildcard":            {reason: "it is for one label, as in a certificate", text: "*.apps.example", has: []string{"a.apps.example"}, hasNot: []string{"apps.example", "a.b.apps.example"}},
		"the same twice":        {reason: "it is given", text: "a.example,a.example", has: []string{"a.example"}},
		"the longest label":     {reason: "DNS allows it", text: long + ".example", has: []string{long + ".example"}},
		"a label beyond":        {reason: "DNS does not", text: long + "a.example", err: "is not 1 to 63"},
		"a name beyond":         {reason: "DNS has 253 characters", text: strings.Repeat("a.", 126) + "ab", err: "host has 254 characters"},
		"upper case":            {reason: "another spelling of the same host", text: "Shop.example", err: `"Shop" is not`},
		"a letter that folds":   {reason: "the sign of Kelvin is k in lower case", text: "\u212a.example", err: "is not 1 to 63"},
		"a dot at the end":      {reason: "another spelling of the same host", text: "a.example.", err: `"" is not`},
		"a comma at the end":    {reason: "a host is missing", text: "a.example,", err: `"" is not`},
		"a space alone":         {reason: "a host is missing", text: " ", err: `"" is not`},
		"a second line":         {reason: "commas divide hosts", text: "a.example\nb.example", err: "is not 1 to 63"},
		"everything":            {reason: "it has no name", text: "*", err: `"*" is not`},
		"a wildcard of nothing": {reason: "it has no name", text: "*.", err: `"" is not`},
		"a wildcard within":     {reason: "it is for a first label alone", text: "a.*.example", err: `"*" is not`},
		"two wildcards":         {reason: "it is for one label", text: "*.*.example", err: `"*" is not`},
		"part of a label":       {reason: "it is for a whole label", text: "a*.example", err: `"a*" is not`},
		"an address":            {reason: "no route has one for a host", text: "192.0.2.1", err: `"1" does not begin with a letter`},
		"a port":                {reason: "a host has none", text: "a.example:80", err: "is not 1 to 63"},
		"a URL":                 {reason: "it is no host", text: "https://a.example", err: "is not 1 to 63"},
		"one wrong of two":      {reason: "a typo gives nothing by half", text: "a.example, b_c", err: `"b_c" is not`, hasNot: []string{"a.example"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			allowed, err := ParseHosts(tc.text)
			if (err == nil) != (tc.err == "") || !strings.Contains(text(err), tc.err) {
				t.Errorf("error is %v, want %q: %s", err, tc.err, tc.reason)
			}
			for _, host := range tc.has {
				if !allowed.Contains(host) {
					t.Errorf("%q is not among %q: %s", host, tc.text, tc.reason)
				}
			}
			for _, host := range tc.hasNot {
				if allowed.Contains(host) {
					t.Errorf("%q is among %q: %s", host, tc.text, tc.reason)
				}
			}
		})
	}
}

// FuzzParseHosts: what is read is what an administrator wrote, in the one spelling, and a host
// is among it by itself or by its parent's wildcard, and by nothing else.
func FuzzParseHosts(f *testing.F) {
	for _, text := range []string{"", "a.example", "a.example, *.b.example", "*.apps.example", "A.example", "a.example.", "*", ",", "192.0.2.1", "\u212a.example"} {
		f.Add(text, "a.example")
		f.Add(text, "x.apps.example")
	}
	f.Fuzz(func(t *testing.T, text, host string) {
		allowed, err := ParseHosts(text)
		_, parent, _ := strings.Cut(host, ".")
		written := slices.ContainsFunc(strings.Split(text, ","), func(entry string) bool {
			entry = strings.Trim(entry, " ")
			return entry == host || entry == "*."+parent
		})
		switch has := CheckHost(host) == nil && allowed.Contains(host); {
		case err != nil && has:
			t.Errorf("%q has %q although it cannot be read: %v", text, host, err)
		case err == nil && CheckHost(host) == nil && has != written:
			t.Errorf("%q has %q: %t, and it is written there: %t", text, host, has, written)
		}
		holding := AssignHosts([]HostRequest{{Account: "1", Host: host, Allowed: text}}, "own.example")["1"]
		if h := holding.Host; h != "" && h != "1.own.example" && (h != host || !written || strings.ToLower(h) != h || strings.HasSuffix(h, ".")) {
			t.Errorf("an account that was given %q and names %q gets %q", text, host, h)
		}
	})
}
