// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import workv1 "open-cluster-management.io/api/work/v1"

// ConditionServed, of a work, is True while all pods of the Deployment are of the revision
// that its message begins with, and some are available. The image follows in the message,
// and behind a colon, if it is False, why. That pods are missing, as while the autoscaler
// adds some, does not make it False.
const ConditionServed = "WorkersServed"

const (
	// servedExpression says that the Deployment was looked at as it is now, and that there are no
	// pods but new ones that serve. What is zero is missing in its status.
	servedExpression = `has(object.status) && has(object.status.observedGeneration)` +
		` && object.status.observedGeneration == object.metadata.generation` +
		` && has(object.status.replicas) && object.status.replicas > 0` +
		` && has(object.status.updatedReplicas) && object.status.updatedReplicas == object.status.replicas` +
		` && has(object.status.availableReplicas) && object.status.availableReplicas > 0`

	// answerExpression is what the condition says: what is asked for, and if it does not
	// serve, how many pods there are, and what keeps the others from it.
	answerExpression = `object.metadata.annotations['` + AnnotationRevision + `']` +
		` + ' ' + object.spec.template.spec.containers[0].image` +
		` + (result ? '' : ': ' + ([` + countExpression + `] + ` + faultsExpression + `).join('; '))`

	countExpression = `object.?status.?observedGeneration.orValue(0) != object.metadata.generation` +
		` ? 'the change was not seen yet'` +
		` : string(object.?status.?updatedReplicas.orValue(0)) + ' of '` +
		` + string(object.?status.?replicas.orValue(0)) + ' pods are up to date, '` +
		` + string(object.?status.?availableReplicas.orValue(0)) + ' available, '` +
		` + string(object.?status.?unavailableReplicas.orValue(0)) + ' not'`

	faultsExpression = `object.?status.?conditions.orValue([]).filter(c, has(c.message) &&` +
		` (c.type == 'ReplicaFailure' && c.status == 'True' || c.type == 'Progressing' && c.status == 'False'))` +
		`.map(c, c.message)`
)

// manifestConfigs say how objects are written and what is told of them.
func (p Placement) manifestConfigs() []workv1.ManifestConfigOption {
	id := func(group, resource, name string) workv1.ResourceIdentifier {
		return workv1.ResourceIdentifier{Group: group, Resource: resource, Namespace: Name(p.Account), Name: name}
	}
	name := p.deploymentName()
	deployment := serverSideApply(id("apps", "deployments", name))
	deployment.FeedbackRules = []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}}
	deployment.FeedbackScrapeType = workv1.FeedbackWatchType
	deployment.ConditionRules = []workv1.ConditionRule{{
		Condition: ConditionServed, Type: workv1.CelConditionExpressionsType,
		CelExpressions: []string{servedExpression}, MessageExpression: answerExpression,
	}}
	configs := []workv1.ManifestConfigOption{deployment, serverSideApply(id("autoscaling", "horizontalpodautoscalers", name))}
	switch p.Options.Route {
	case RouteIngress:
		return append(configs, serverSideApply(id("networking.k8s.io", "ingresses", name)))
	case RouteGateway:
		return append(configs, serverSideApply(id("gateway.networking.k8s.io", "httproutes", "*")))
	default:
		return configs
	}
}

// serverSideApply is by the server: of what others wrote into a field of ours nothing stays, and of
// what others have nothing is touched. What the API server fills in is said here, so that a
// work which comes back from it is as it was made.
func serverSideApply(id workv1.ResourceIdentifier) workv1.ManifestConfigOption {
	return workv1.ManifestConfigOption{
		ResourceIdentifier: id,
		UpdateStrategy: &workv1.UpdateStrategy{
			Type:            workv1.UpdateStrategyTypeServerSideApply,
			ServerSideApply: &workv1.ServerSideApplyConfig{Force: true, FieldManager: workv1.DefaultFieldManager},
		},
		FeedbackScrapeType: workv1.FeedbackPollType,
	}
}
