// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"strings"
)

// manyCases are about size.
func manyCases() map[string]Case {
	const count = 400
	manifests, names := make([]string, count), make([]string, count)
	var lines strings.Builder
	for i := range count {
		name := fmt.Sprintf("m-%03d", i)
		manifests[i], names[i] = cm(name, "1"), "configmaps/"+name
		lines.WriteString(cmMeta(i, name) + "+manifest@1\n")
	}
	return map[string]Case{
		"a work of 400 manifests is applied, listed and deleted": {
			reason: "facts 4.6, 4.7: every entry, in the order of the spec; every object in the anchor",
			ready:  func(s *stage) { s.patience = 3 * patience }, // in the spoke it is 400 requests
			spec:   spec("", manifests...),
			want:   "work\n+work@1\n" + lines.String(),
			then: func(s *stage) {
				s.lists("$w", names...)
				s.ends("$w")
				for _, name := range []string{"m-000", "m-199", "m-399"} {
					s.absent("ConfigMap", name)
				}
			},
		},
	}
}
