-- Run once, when the server's folder is new.
CREATE DATABASE lakes;
CREATE DATABASE shop;
\connect shop

CREATE TABLE customers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    joined timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer bigint NOT NULL REFERENCES customers,
    amount numeric(10, 2) NOT NULL,
    status text NOT NULL DEFAULT 'open',
    placed timestamptz NOT NULL DEFAULT now()
);
INSERT INTO customers (name) SELECT 'customer ' || number FROM generate_series(1, 1000) number;
INSERT INTO orders (customer, amount) SELECT 1 + number % 1000, number % 500 + 0.99 FROM generate_series(1, 20000) number;
