#!/usr/bin/env bash
# Random passwords for the shared services, as the lines of an environment file that compose, Kubernetes and systemd read:
#     (umask 077; bash infra/new-secrets.sh > ~/lexmill-secrets.env)
set -eu

word() {
  head -c 24 /dev/urandom | base64 | tr '+/' '-_'
}

mlflow=$(word)
prefect=team:$(word)
cat <<END
POSTGRES_PASSWORD=$(word)
MLFLOW_DB_PASSWORD=$(word)
PREFECT_DB_PASSWORD=$(word)
MLFLOW_AUTH_ADMIN_PASSWORD=$mlflow
MLFLOW_FLASK_SERVER_SECRET_KEY=$(word)
MLFLOW_TRACKING_USERNAME=admin
MLFLOW_TRACKING_PASSWORD=$mlflow
PREFECT_SERVER_API_AUTH_STRING=$prefect
PREFECT_API_AUTH_STRING=$prefect
AWS_ACCESS_KEY_ID=lexmill
AWS_SECRET_ACCESS_KEY=$(word)
END
