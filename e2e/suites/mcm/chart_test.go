// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"fmt"
	"testing"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/hack/clusters"
)

// web is a chart of a program that runs and of what it shows.
func web(version string) map[string]string {
	return map[string]string{
		"nginx-lego/Chart.yaml":  env.ChartFile("nginx-lego", version),
		"nginx-lego/values.yaml": "message: none\nreplicas: 1\n",
		"nginx-lego/templates/page.yaml": `
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}"}
data: {index.html: "{{ .Values.message }} of {{ .Chart.Version }}"}
`,
		"nginx-lego/templates/web.yaml": fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Release.Name }}"}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: "{{ .Release.Name }}"}}
  template:
    metadata:
      labels: {app: "{{ .Release.Name }}"}
      annotations: {page: "{{ .Values.message | sha256sum }}"} # a kubelet shows running pods a changed page after a minute
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: web, image: %q, imagePullPolicy: Never, command: [httpd, -f, -p, "8080", -h, /www], volumeMounts: [{name: www, mountPath: /www}]}
      volumes: [{name: www, configMap: {name: "{{ .Release.Name }}"}}]
`, clusters.BusyboxImage),
	}
}

// chartOf is a chart of one template.
func chartOf(name, template string) map[string]string {
	return map[string]string{name + "/Chart.yaml": env.ChartFile(name, "1.0.0"), name + "/templates/all.yaml": template}
}

// hooked is a chart of a ConfigMap before which a program runs.
func hooked(name, script string) map[string]string {
	files := chartOf(name, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"{{ .Release.Name }}\"}\n")
	files[name+"/templates/hook.yaml"] = fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: "{{ .Release.Name }}-hook", annotations: {helm.sh/hook: pre-install}}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers: [{name: hook, image: %q, imagePullPolicy: Never, command: [sh, -c, %q]}]
`, clusters.BusyboxImage, script)
	return files
}

// served are the charts of these tests, by the name of their file.
func served(t *testing.T) map[string][]byte {
	t.Helper()
	charts := map[string]map[string]string{
		"nginx-lego-0.3.1.tgz": web("0.3.1"),
		"nginx-lego-0.4.0.tgz": web("0.4.0"),
		"slow.tgz":             hooked("slow", "sleep 12"),
		"long.tgz":             hooked("long", "sleep 60"),
		"failing.tgz":          hooked("failing", "exit 3"),
		"hungry.tgz":           chartOf("hungry", `{{ $s := "xxxxxxxx" }}{{ range until 40 }}{{ $s = print $s $s }}{{ end }}{{ len $s }}`),
	}
	files := map[string][]byte{"values.yaml": []byte("message: from a file\nreplicas: 2\n")}
	for name, chart := range charts {
		archive, err := env.Archive(chart)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = archive
	}
	return files
}

// serveCharts serves them to the first spoke while the test runs.
func (s *tests) serveCharts(t *testing.T) {
	stop, err := env.ServeCharts(t.Context(), s.Spoke().Cluster, served(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	s.charts = env.ChartsURL(s.Spoke().Cluster)
}
