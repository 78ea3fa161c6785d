// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
)

// writeBuffer is what is gathered of an answer before it is written, in bytes.
const writeBuffer = 32 << 10

// checkAccept says whether the caller takes the one form in which an answer is
// written. YAML would be made of all of it at once, in fifty times its memory, and
// the indentation of JSON by a cluster that nests deeply is quadratic.
func (c codecs) checkAccept(r *http.Request) error {
	form, _ := runtime.SerializerInfoForMediaType(c.SupportedMediaTypes(), runtime.ContentTypeJSON) // every factory has it
	if _, ok := negotiation.NegotiateMediaTypeOptions(r.Header.Get("Accept"), []runtime.SerializerInfo{form}, negotiation.DefaultEndpointRestrictions); !ok {
		return negotiation.NewNotAcceptableError([]string{runtime.ContentTypeJSON})
	}
	return nil
}

// encodeView writes a ViewWork with its results as JSON. It writes object after
// object as they came, where an encoder would hold all of them once more, and up to
// six times as large: encoding/json escapes <, > and &.
func encodeView(to io.Writer, v *livev1alpha1.ViewWork) error {
	envelope := *v
	envelope.APIVersion, envelope.Kind = livev1alpha1.SchemeGroupVersion.String(), "ViewWork"
	envelope.Status.Clusters = nil
	raw, err := json.Marshal(envelope)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(to, writeBuffer)
	if len(v.Status.Clusters) > 0 {
		// What is left out is the last member of the last member.
		raw = raw[:len(raw)-len("}}")]
		_, _ = w.Write(raw)
		separator := `,"clusters":[`
		for i := range v.Status.Clusters {
			_, _ = w.WriteString(separator)
			separator = `,`
			if err := encodeCluster(w, v.Status.Clusters[i]); err != nil {
				return err
			}
		}
		raw = []byte("]}}")
	}
	_, _ = w.Write(raw)
	_ = w.WriteByte('\n')
	return w.Flush() // its error is that of any write
}

// encodeCluster writes one cluster's answer.
func encodeCluster(w *bufio.Writer, c livev1alpha1.ClusterView) error {
	objects, table := c.Objects, c.Table
	c.Objects, c.Table = nil, nil
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	_, _ = w.Write(raw[:len(raw)-len("}")])
	separator := `,"objects":[`
	for _, o := range objects {
		_, _ = w.WriteString(separator)
		separator = `,`
		_, _ = w.Write(o.Raw)
	}
	if len(objects) > 0 {
		_ = w.WriteByte(']')
	}
	if table != nil {
		_, _ = w.WriteString(`,"table":`)
		_, _ = w.Write(table.Raw)
	}
	return w.WriteByte('}')
}
