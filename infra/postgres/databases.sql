-- An own role and database for each service: what one of them leaks opens none of the others.
-- Run once by a superuser, with both passwords in the environment (PostgreSQL's client 14 or newer):
--     MLFLOW_DB_PASSWORD=... PREFECT_DB_PASSWORD=... psql --file infra/postgres/databases.sql
\set ON_ERROR_STOP on
\getenv mlflow_password MLFLOW_DB_PASSWORD
\getenv prefect_password PREFECT_DB_PASSWORD
CREATE ROLE mlflow LOGIN PASSWORD :'mlflow_password';
CREATE ROLE prefect LOGIN PASSWORD :'prefect_password';
CREATE DATABASE mlflow OWNER mlflow;
CREATE DATABASE mlflow_auth OWNER mlflow;
CREATE DATABASE prefect OWNER prefect;
REVOKE ALL ON DATABASE mlflow, mlflow_auth, prefect FROM PUBLIC;
